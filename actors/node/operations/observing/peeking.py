"""`peek` and `reclaim_quorum_memory`: the operations of rabbitmq-queues that look into one quorum queue (CM-173)."""

from __future__ import annotations

from .....amqp.fields import table_to_dict
from .....amqp.frames import content_body, content_properties
from .....amqp.properties import Properties, decode_properties
from .....routing.queue_types import QUORUM
from .....routing.rows import QueueRow
from ....queue.contract import to_queue
from ..registry import ANSWER_SECONDS, OperationError, Operator, operation
from .messages import plain_value

#: Bytes of a body that are shown.
PAYLOAD_BYTES = 64


@operation()
async def peek(operator: Operator, *, name: str, vhost: str, position: int) -> dict[str, object]:
    """The ready message of a quorum queue at this place, where 1 is the head. It stays where it is."""
    if position < 1:
        raise OperationError("usage", "position value must be a positive integer")
    row = _quorum(operator, vhost, name, "Cannot peek into a classic queue")
    found = await operator.process.ask(row.address, to_queue.peek(position), ANSWER_SECONDS)
    if found is None:
        raise OperationError("unavailable", "Target queue does not have a message at that position")
    message, returns = found
    properties = decode_properties(content_properties(message.content))
    shown = {key: getattr(properties, key) for key in Properties.__slots__ if key != "headers"}
    shown = {key: value for key, value in shown.items() if value is not None}
    headers = table_to_dict(properties.headers) if properties.headers is not None else {}
    payload = content_body(message.content)[:PAYLOAD_BYTES]
    return {
        **shown,
        "routing_keys": list(message.origin.routing_keys),
        "exchange": message.origin.exchange,
        f"payload (max {PAYLOAD_BYTES} bytes)": payload.decode("utf-8", "backslashreplace"),
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
