"""`RemoteSession`: performs operations for a session on another node of the cluster.

A `ControlSession` of another node asks for it, and relays the answers to its own client. They travel packed, so that
the node between takes nothing apart. The session ends with the process that asked for it, or with the link to its node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...runtime.contract import Address, Contract, Sender
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..context.starting import ToNewRemoteSession
from ..contracts.control import Piece
from ..contracts.node import ToNode
from ..node.operations.registry import Operator
from .answers import Answer, answers, refusal
from .frames import pack


class RemoteSession(Process):
    """See the module."""

    contract = ToNewRemoteSession

    def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode], client: Address[Contract]) -> None:
        self.operator = Operator(self, context, node)
        self.answers: AsyncIterator[Answer] | None = None
        self.monitor(client, "client")

    async def on_begin_operation(self, sender: Sender, name: str, arguments: dict[str, object]) -> Piece:
        self.answers = answers(self.operator, name, arguments)
        return await self._next()

    async def on_more_of_operation(self, sender: Sender) -> Piece:
        return await self._next()

    async def _next(self) -> Piece:
        if self.answers is None:
            return True, pack(refusal("software", "no operation runs in this session"))
        answer = await anext(self.answers)
        is_last = "rows" not in answer
        if is_last:
            self.answers = None
        try:
            return is_last, pack(answer)
        except (ValueError, OverflowError, TypeError) as error:
            self.answers = None
            return True, pack(refusal("software", f"the answer cannot be sent: {error}"))

    def on_end_session(self, sender: Sender) -> None:
        self.stop("the client needs it no longer")

    def on_down(self, name: str, reason: ExitReason) -> None:
        self.stop("the client has gone")

    def on_exit(self) -> None:
        if hasattr(self, "operator"):
            self.operator.close()
