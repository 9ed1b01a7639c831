"""The messages of the processes that serve commands: `ControlListener`, `ControlSession` and `RemoteSession`."""

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


#: Whether it is the last of an answer, and one message of the control protocol, packed.
Piece = tuple[bool, bytes]


class ToRemoteSession(Contract):
    """What `RemoteSession` receives. It performs one operation after the other."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], client: Address[Contract]) -> None:
        """From the node: perform operations for the process `client`, and end with it."""

    @message
    def begin_operation(self, name: str, arguments: dict[str, object]) -> Piece:
        """From the client: perform this operation. Answered with the first piece of its answer."""

    @message
    def more_of_operation(self) -> Piece:
        """From the client, after a piece that was not the last one: answered with the next one."""

    @message
    def end_session(self) -> None:
        """From the client, which needs it no longer."""


to_control_listener = ToControlListener()
to_control_session = ToControlSession()
to_remote_session = ToRemoteSession()
