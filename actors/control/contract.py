"""The messages of the processes that serve commands: `ControlListener` and `ControlSession`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..node.context import NodeContext
    from ..node.contract import ToNode


class ToControlListener(Contract):
    """What `ControlListener` receives."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], is_local: bool) -> str:
        """From the node: listen. Answered with where. Raises ControlError.

        `is_local`: in the place of `control_dir`, for the owner of the node; else on `control_port` with a secret.
        """


class ToControlSession(Contract):
    """What `ControlSession` receives."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], fd: int, secret: bytes | None) -> None:
        """From the listener: serve the accepted socket `fd`. With a `secret` the client must prove that it knows it."""


to_control_listener = ToControlListener()
to_control_session = ToControlSession()
