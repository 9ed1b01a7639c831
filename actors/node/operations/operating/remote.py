"""The operation by which a client of this node reaches the other nodes of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .....runtime.contract import Address
from .....runtime.errors import ProcessDown, ProcessTimeout
from .....runtime.process import Process
from ....contracts.control import ToRemoteSession, to_remote_session
from ....contracts.info_items import InfoItems
from ....contracts.node import to_node
from ..registry import ANSWER_SECONDS, OperationError, Operator, Rows, operation


class Remote:
    """The session on one other node, which is kept for the next request."""

    def __init__(self, process: Process, address: Address[ToRemoteSession]) -> None:
        self._process = process
        self.address = address

    def close(self) -> None:
        self._process.send(self.address, to_remote_session.end_session())


@operation()
async def on_node(operator: Operator, *, node: str, name: str, arguments: InfoItems) -> AsyncIterator[Rows]:
    """Perform an operation on another node of the cluster. Each row has a `piece`: one packed message of the answer, as
    that node would send it to a client of its own.
    """
    process, key = operator.process, f"node {node}"
    try:
        session = operator.kept.get(key)
        if not isinstance(session, Remote):
            supervisor = operator.context.peers.node(node)
            address = await process.ask(supervisor, to_node.open_session(process.myAddress), timeout=ANSWER_SECONDS)
            session = operator.kept[key] = Remote(process, address)
        begin = to_remote_session.begin_operation(name, arguments)
        is_last, piece = await process.ask(session.address, begin, timeout=ANSWER_SECONDS)
        yield [{"piece": piece}]
        while not is_last:
            more = to_remote_session.more_of_operation()
            is_last, piece = await process.ask(session.address, more, timeout=ANSWER_SECONDS)
            yield [{"piece": piece}]
    except (ProcessDown, ProcessTimeout):
        # End the session: an answer that it still sends would be taken for the answer to the next request.
        lost = operator.kept.pop(key, None)
        if lost is not None:
            lost.close()
        raise OperationError("unavailable", f"node {node} does not answer") from None
