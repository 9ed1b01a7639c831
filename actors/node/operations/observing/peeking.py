"""`peek` and `reclaim_quorum_memory`: the operations of rabbitmq-queues that look into one quorum queue (CM-173)."""

from __future__ import annotations

from .....amqp.fields import table_to_dict
from .....amqp.properties import Properties, decode_properties
from .....routing.queue_types import QUORUM
from .....routing.rows import QueueRow
from ....contracts.queue import to_queue
from ....queue.message_index.look_up import PEEKED_BYTES
from ..registry import ANSWER_SECONDS, OperationError, Operator, operation
from .messages import plain_value


@operation()
async def peek(operator: Operator, *, name: str, vhost: str, position: int) -> dict[str, object]:
    """The ready message of a quorum queue at this place, where 1 is the head. It stays where it is."""
    if position < 1:
        raise OperationError("usage", "position value must be a positive integer")
    row = _quorum(operator, vhost, name, "Cannot peek into a classic queue")
    found = await operator.process.ask(row.address, to_queue.peek(position), ANSWER_SECONDS)
    if found is None:
        raise OperationError("unavailable", "Target queue does not have a message at that position")
    exchange, routing_keys, encoded, body, returns = found
    properties = decode_properties(encoded)
    shown = {key: getattr(properties, key) for key in Properties.__slots__ if key != "headers"}
    shown = {key: value for key, value in shown.items() if value is not None}
    headers = table_to_dict(properties.headers) if properties.headers is not None else {}
    return {
        **shown,
        "routing_keys": routing_keys,
        "exchange": exchange,
        f"payload (max {PEEKED_BYTES} bytes)": body.decode("utf-8", "backslashreplace"),
        **{f"header.{key}": plain_value(value) for key, value in headers.items()},
        "header.x-delivery-count": returns,
    }


@operation()
async def reclaim_quorum_memory(operator: Operator, *, name: str, vhost: str) -> None:
    """Have a quorum queue move to the disk what it need not have in memory."""
    row = _quorum(operator, vhost, name, "This operation is not applicable to classic queues")
    operator.process.send(row.address, to_queue.page_out())


def _quorum(operator: Operator, vhost: str, name: str, refusal: str) -> QueueRow:
    row = operator.context.routing.queue(vhost, name)
    if row is None:
        raise OperationError("unavailable", f"Target queue was not found in virtual host '{vhost}'")
    if row.type != QUORUM.name:
        raise OperationError("unavailable", refusal)
    if row.state != "running":
        raise OperationError("unavailable", f"the queue does not run: it is {row.state}")
    return row
