"""Operations that act on queues and connections: purge, delete, close (CM-167 to CM-170)."""

from __future__ import annotations

from .....amqp.constants import CONNECTION_FORCED
from .....amqp.errors import AmqpError
from .....routing.phrases import no_queue, queue_phrase
from .....routing.rows import QueueRow
from ....context.events import OPERATOR
from ....contracts.connection import to_connection
from ....contracts.metadata import to_metadata
from ....contracts.queue import to_queue
from ..observing.listings import connections
from ..registry import OperationError, Operator, check_vhost, operation

#: What RabbitMQ's command says of a queue that is not deleted, by what the broker's error says of it.
_REFUSED = {"not empty": "Queue is not empty", "in use": "Queue is in use"}


@operation()
async def purge_queue(operator: Operator, *, name: str, vhost: str) -> int:
    """Remove the ready messages of a queue, and return how many they were; unacknowledged ones stay."""
    row = _queue(operator, vhost, name)
    if row is None:
        raise OperationError("unavailable", "not_found", (f"There is no queue '{name}' in vhost '{vhost}'.",))
    if row.state != "running":
        raise OperationError("unavailable", f"the queue does not run: it is {row.state}")
    return await operator.process.ask(row.address, to_queue.purge())


@operation()
async def delete_queue(
    operator: Operator, *, name: str, vhost: str, if_empty: bool = False, if_unused: bool = False
) -> int:
    """Delete a queue, even an exclusive one, and return the number of ready messages that it had."""
    row = _queue(operator, vhost, name)
    if row is None:
        raise OperationError("usage", "Queue not found")
    request = to_metadata.delete_queue(vhost, name, if_unused, if_empty, row.exclusive_owner or "", OPERATOR)
    try:
        return await operator.process.ask(operator.context.metadata, request)
    except AmqpError as error:
        text = _REFUSED.get(error.text.removeprefix(queue_phrase(vhost, name)).strip())
        if error.text == no_queue(vhost, name).text:
            text = "Queue not found"
        if text is None:
            raise  # such as that its home is down, so that nobody knows whether it is empty
        raise OperationError("usage", text) from None


@operation()
async def close_connection(operator: Operator, *, connection: str, reason: str) -> bool:
    """Close the connection with this pid or name with 320 and the reason. False if there is none."""
    if not (connection.startswith("<") and connection.endswith(">") or " -> " in connection):
        raise OperationError("unavailable", f'"{connection}" is neither a pid nor the name of a connection')
    async for address, items in connections(operator):
        if connection in (items["pid"], items["name"]):
            operator.process.send(address, to_connection.force_close(CONNECTION_FORCED, reason))
            return True
    return False


@operation()
async def close_all_connections(
    operator: Operator, *, reason: str, vhost: str | None = None, limit: int = 0, per_connection_delay: int = 0
) -> int:
    """Close the connections of a virtual host, of all without one, with 320 and the reason. Returns their number.

    At most `limit` are closed unless it is 0, and `per_connection_delay` milliseconds pass between two of them.
    """
    if vhost is not None:
        check_vhost(operator, vhost)
    closed = 0
    async for address, items in connections(operator):
        if vhost is not None and items["vhost"] != vhost:
            continue
        if closed and per_connection_delay:
            await operator.process.sleep(per_connection_delay / 1000)
        operator.process.send(address, to_connection.force_close(CONNECTION_FORCED, reason))
        closed += 1
        if closed == limit:
            break
    return closed


@operation()
async def close_all_user_connections(operator: Operator, *, user: str, reason: str) -> int:
    """Close the connections of a user with 320 and the reason. Returns their number."""
    closed = 0
    async for address, items in connections(operator):
        if items["user"] == user:
            operator.process.send(address, to_connection.force_close(CONNECTION_FORCED, reason))
            closed += 1
    return closed


def _queue(operator: Operator, vhost: str, name: str) -> QueueRow | None:
    check_vhost(operator, vhost)
    return operator.context.routing.queue(vhost, name)
