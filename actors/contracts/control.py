"""The messages of `RemoteSession`, which performs operations for a process of another node."""

from __future__ import annotations

from ...runtime.contract import Contract, message

#: A piece of an answer: whether it is the last one, and one packed message of the control protocol.
Piece = tuple[bool, bytes]


class ToRemoteSession(Contract):
    """What `RemoteSession` receives. It performs one operation after the other."""

    @message
    def begin_operation(self, name: str, arguments: dict[str, object]) -> Piece:
        """From the client: perform this operation. Answered with the first piece of its answer."""

    @message
    def more_of_operation(self) -> Piece:
        """From the client, after a piece that was not the last one: answered with the next one."""

    @message
    def end_session(self) -> None:
        """From the client, which needs it no longer."""


to_remote_session = ToRemoteSession()
