"""What a channel does about a queue that crashes and is restarted (AB-63, AB-126).

A method that meets the queue between the two waits and is then asked anew. Its consumers are registered again, silently and under the same tag: the client sees
nothing but the messages that are delivered once more. A consumer is cancelled with notification instead if its arguments have `x-cancel-on-ha-failover`, or if the
queue does not take it again.

    crash -> on_down -> `consume_again` asks Metadata for the row -> consume, one consumer after the other
                                                                  -> crashes again: on_down starts over, and this attempt, whose consumers have begun another life, ends

Unacknowledged deliveries are not taken over: the new process numbers its messages anew (`Subscriptions.queue_gone`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...amqp.errors import AmqpError
from ...routing.phrases import no_queue, queue_unavailable
from ...routing.rows import QueueRow
from ...runtime.errors import ProcessDown, ProcessTimeout

if TYPE_CHECKING:
    from .process import Channel
    from .subscriptions import ChannelConsumer

#: How often a method is put to a queue that crashes again and again: it may be what makes it crash.
ATTEMPTS = 3


async def restarted(channel: "Channel", row: QueueRow) -> QueueRow:
    """The row of the same queue once it runs again; `row` has the address that is dead. Raises AmqpError 404 if it does not within `channel_operation_timeout`, or never will."""
    question = "await_restart", row.vhost, row.name, row.address
    try:
        again: QueueRow = await channel.ask(
            channel.metadata, question, timeout=channel.settings.channel_operation_timeout / 1000
        )
    except ProcessTimeout:
        raise queue_unavailable(row.vhost, row.name, "timeout", channel.context.node_name) from None
    if again.queue_id != row.queue_id:
        raise no_queue(row.vhost, row.name)  # it was deleted, and another has its name
    return again


async def consume_again(channel: "Channel", row: QueueRow, consumers: Sequence["ChannelConsumer"]) -> None:
    """Registers the consumers with the queue's next process, in their order; `row` is that of the dead one."""
    subscriptions = channel.subscriptions
    lives = [(consumer, consumer.life) for consumer in consumers]

    def is_wanted(consumer: "ChannelConsumer", life: int) -> bool:
        # The client may have cancelled it, or the channel closed; or the queue crashed again, and the next attempt sees to it.
        is_ours = subscriptions.consumers.get(consumer.tag) is consumer
        return channel.state == "running" and is_ours and consumer.stage == "running" and consumer.life == life

    try:
        row = await restarted(channel, row)
    except AmqpError:
        for consumer, life in lives:
            if is_wanted(consumer, life):
                subscriptions.cancel_by_broker(consumer)
        return
    for consumer, life in lives:
        if not is_wanted(consumer, life):
            continue
        channel.know(row)
        if not is_wanted(consumer, life):
            continue  # what the channel knew was a dead process, heard of by a late publish: its end has started over
        try:
            await channel.ask(row.address, subscriptions.consume_message(consumer))
        except ProcessDown:
            return  # `on_down` starts over
        except AmqpError:
            if is_wanted(consumer, life):
                subscriptions.cancel_by_broker(consumer)
