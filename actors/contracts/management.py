"""The messages of the process that runs management beside the node."""

from __future__ import annotations

from ...runtime.contract import Contract, message


class ToManagement(Contract):
    """What `Management` receives."""

    @message
    def ports(self) -> dict[str, int]:
        """From the node: the ports on which that process listens, by protocol; empty while it does not."""

    @message
    def end(self) -> bool:
        """From the node, which stops: end that process. Answered True when it has ended."""


to_management = ToManagement()
