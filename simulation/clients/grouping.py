"""How clients consume from a queue by way of a group (QP-75): each queue has a group with it as the only member.

For the model of the queue nothing changes: it gives its messages to the same consumers, by way of another process. A
message that is in flight to a consumer that leaves comes back, and is redelivered though no client has received it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.fields import table_from

if TYPE_CHECKING:
    from ..model.queue_model import QueueModel
    from .channel import SimChannel


def group_of(channel: SimChannel, queue: QueueModel) -> str:
    """The group by way of which this schedule consumes from the queue; empty if it consumes from the queue itself.

    These queues have no group: a queue that ends with its connection or with its last consumer, one that has shards,
    and one with a single active consumer, because the group itself would be that consumer.
    """
    kind = queue.kind
    if not channel.schedule.plan.has_groups:
        return ""
    is_member = not (kind.exclusive or kind.auto_delete or kind.is_sharded or kind.is_single_active)
    return f"group of {kind.name}" if is_member else ""


def with_group(channel: SimChannel, queue: QueueModel, then: Callable[[], None]) -> None:
    """Declare the group of the queue if there is one, and go on."""
    group = group_of(channel, queue)
    if not group:
        then()
        return
    arguments = {"x-queue-type": "group", "x-group-members": [queue.kind.name]}
    declaration = methods.QueueDeclare(queue=group, arguments=table_from(arguments))
    channel.request(declaration, methods.QueueDeclareOk, lambda method, content: then())
