"""`browse_messages_as` shows a user the messages of a queue by number. All of them stay where they are.

With `basic.get` an operator gets only the head of a queue, and has to put it back, which marks it as redelivered.
Browsing reads by number instead, as range readers do (design section 5), so neither consumers nor the queue notice it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .....amqp.frames import content_body, content_properties
from .....amqp.properties import Properties, decode_properties
from .....definitions.access import Access
from .....routing.phrases import no_queue, queue_locked, queue_phrase, queue_unavailable
from .....routing.queue_types import CLASSIC, QUORUM
from .....routing.rows import QueueRow
from ....contracts.info_items import InfoItems
from ....contracts.queue import LookedUp, to_queue
from ..plain_values import plain, plain_table
from ..registry import ANSWER_SECONDS, OperationError, Operator, Rows, operation

#: Messages that one answer may have, and bytes of each body.
MESSAGES_MAX = 100
BODY_MAX = 1 << 20


@operation()
async def browse_messages_as(
    operator: Operator, *, user: str, vhost: str, queue: str, first: int | None, count: int, truncate: int
) -> AsyncIterator[Rows]:
    """Up to `count` messages from the number `first` on, or from the lowest one, each body cut after `truncate` bytes.

    The first row has the lowest number of the queue (`first`), the number that its next message gets (`next`), and the
    number to go on with (`more_from`), which is None at the end.
    """
    if not 1 <= count <= MESSAGES_MAX:
        raise OperationError("data", f"Bad argument: count must be from 1 to {MESSAGES_MAX}, not {count}")
    if not 0 <= truncate <= BODY_MAX:
        raise OperationError("data", f"Bad argument: truncate must be from 0 to {BODY_MAX} bytes, not {truncate}")
    if first is not None and first < 0:
        raise OperationError("data", f"Bad argument: numbers of messages begin at 0, not at {first}")
    row = _queue(operator, user, vhost, queue)
    found = await operator.process.ask(row.address, to_queue.browse(first, count), ANSWER_SECONDS)
    if found is None:
        raise OperationError(
            "data",
            f"{_named(row)} orders its messages by priority or lane, so none can be read by number; get messages",
        )
    yield [{"first": found.first, "next": found.next, "more_from": found.more_from}]
    for each in found.messages:
        yield [_shown(each, truncate)]


def _queue(operator: Operator, user: str, vhost: str, name: str) -> QueueRow:
    """The queue, if the user may read it and it can be read by number. Raises AmqpError and OperationError."""
    row = operator.context.routing.queue(vhost, name)
    if row is None:
        raise no_queue(vhost, name)
    Access(operator.context.definitions, user, vhost).check("read", "queue", row.shard_of or name)
    if row.exclusive_owner is not None:
        raise queue_locked(vhost, name)
    if row.state != "running":
        raise queue_unavailable(vhost, name, row.state, row.node)
    if row.node not in ("", operator.context.node_name):
        raise OperationError("unavailable", f"{_named(row)} is at node '{row.node}', which alone can browse it")
    if row.shards:
        raise OperationError(
            "data", f"{_named(row)} is divided into shards, each with numbers of its own; browse these"
        )
    if row.type not in (CLASSIC.name, QUORUM.name):
        raise OperationError(
            "data", f"{_named(row)} is a {row.type}, whose messages consumers read; it cannot be browsed"
        )
    return row


def _named(row: QueueRow) -> str:
    return queue_phrase(row.vhost, row.name)


def _shown(found: LookedUp, truncate: int) -> InfoItems:
    message = found.message
    assert message is not None, "a queue browses only what it can read"
    body = content_body(message.content)
    properties = decode_properties(content_properties(message.content))
    values = {name: getattr(properties, name) for name in Properties.__slots__}
    if properties.headers is not None:
        values["headers"] = plain_table(properties.headers)
    return {
        "number": found.number,
        "state": "ready" if found.channel_id is None else "unacked",
        "channel": found.channel_id or "",
        "redelivered": message.redelivered,
        "exchange": message.origin.exchange,
        "routing_key": message.origin.routing_keys[0] if message.origin.routing_keys else "",
        "properties": {name: plain(value) for name, value in values.items() if value is not None},
        "bytes": len(body),
        "body": body[:truncate],
    }
