"""The messages of the process that runs management beside the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ..node.context import NodeContext


class ToManagement(Contract):
    """What `Management` receives."""

    @message
    def start(self, context: NodeContext) -> None:
        """From the node: start the process that serves the HTTP API, and start it again whenever it ends."""

    @message
    def ports(self) -> dict[str, int]:
        """From the node: the ports on which that process listens, by protocol; empty while it does not."""

    @message
    def end(self) -> bool:
        """From the node, which stops: end that process. Answered True when it has ended."""


to_management = ToManagement()
