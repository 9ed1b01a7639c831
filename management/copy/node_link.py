"""`NodeLink`: the management process's side of the control protocol.

One connection stays open for the statistics. Each operation of a request has a connection of its own, so that a long
operation delays no other. The node runs in this process's parent, so a node that cannot be reached is stopping, or is
starting again in that process.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ...actors.control import place
from ...actors.control.frames import FRAME_MAX, ControlFrameError, FrameBuffer, frame, unpack
from ...actors.control.proof import CHALLENGE_BYTES, SecretError, is_proof, proof

#: Seconds in which the node must accept a connection and greet.
CONNECT_SECONDS = 10.0

#: Operations that may run at once. The node accepts 64 sessions, and commands of its operator need some of them.
OPERATIONS_MAX = 32


class NodeUnreachable(Exception):
    """The node does not answer; the text has the reason."""


class OperationRefused(Exception):
    """The node refuses an operation. `code` is AMQP's reply code, or 0 if AMQP has none for this refusal."""

    def __init__(self, kind: str, text: str, details: list[str], code: int) -> None:
        super().__init__("\n".join([text, *details]))
        self.kind = kind
        self.text = text
        self.details = details
        self.code = code

    @classmethod
    def of(cls, error: dict[str, Any]) -> OperationRefused:
        """The refusal that is in the `error` of an answer."""
        return cls(error["kind"], error["text"], error["details"], error.get("code", 0))


class ControlConnection:
    """One connection to the node, for one request at a time. Its methods raise NodeUnreachable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._input = FrameBuffer(FRAME_MAX)

    @classmethod
    async def open(cls, control_dir: str) -> ControlConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                run_file = place.read_run_file(control_dir)
                if run_file.socket is not None:
                    reader, writer = await asyncio.open_unix_connection(run_file.socket)
                    secret = None
                else:
                    reader, writer = await asyncio.open_connection(run_file.host, run_file.port)
                    secret = place.cookie(control_dir)
                connection = cls(reader, writer)
                try:
                    await connection._greet(secret)
                except BaseException:
                    connection.close()
                    raise
                return connection
        except (OSError, TimeoutError, place.PlaceError, SecretError) as error:
            raise NodeUnreachable(str(error) or "the node does not answer") from None

    async def _greet(self, secret: bytes | None) -> None:
        """Exchange proofs of the secret, which a connection over TCP has: any program may listen on the node's port."""
        theirs = (await self._receive()).get("challenge")
        if secret is None:
            return
        if not isinstance(theirs, bytes):
            raise NodeUnreachable("something else than the node answers: it does not ask for the secret")
        ours = secrets.token_bytes(CHALLENGE_BYTES)
        self._writer.write(frame({"proof": proof(secret, "client", theirs, ours), "challenge": ours}))
        answer = await self._receive()
        if not is_proof(answer.get("proof"), secret, "node", theirs, ours):
            raise NodeUnreachable("something else than the node answers: it has another secret")

    async def rows(self, operation: str, arguments: dict[str, Any]) -> AsyncIterator[list[Any] | Any]:
        """The pieces of a listing as they arrive; an operation with one result has one piece, that result."""
        try:
            self._writer.write(frame({"operation": operation, "arguments": arguments}))
        except (ValueError, OverflowError, TypeError) as error:
            raise OperationRefused("data", f"a value of the request cannot be sent: {error}", [], 0) from None
        while True:
            message = await self._receive()
            for piece in _pieces(message):
                yield piece
            if "rows" not in message:
                return

    async def rows_on(self, node: str, operation: str, arguments: dict[str, Any]) -> AsyncIterator[list[Any] | Any]:
        """As `rows`, for an operation that another node of the cluster performs."""
        wanted = {"node": node, "name": operation, "arguments": arguments}
        async for packed in self.rows("on_node", wanted):
            for each in packed:
                for piece in _pieces(unpack(each["piece"])):
                    yield piece

    async def _receive(self) -> dict[str, Any]:
        try:
            while (message := self._input.next()) is None:
                data = await self._reader.read(1 << 18)
                if not data:
                    raise NodeUnreachable("the node has closed the connection")
                self._input.feed(data)
        except (OSError, ControlFrameError) as error:
            raise NodeUnreachable(str(error)) from None
        return message

    def close(self) -> None:
        self._writer.close()


def _pieces(message: dict[str, Any]) -> Iterator[list[Any] | Any]:
    """The rows or the result in a message of an answer. Raises OperationRefused."""
    if "error" in message:
        raise OperationRefused.of(message["error"])
    if "rows" in message:
        yield message["rows"]
    elif message["result"] is not None:
        yield message["result"]


class NodeLink:
    """Reaches the node whose control socket is in `control_dir`."""

    def __init__(self, control_dir: str) -> None:
        self._control_dir = control_dir
        self._free = asyncio.Semaphore(OPERATIONS_MAX)

    async def feed(self) -> ControlConnection:
        """A connection that stays open, for statistics."""
        return await ControlConnection.open(self._control_dir)

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Perform an operation and return its result; a listing is returned as one list.

        Raises OperationRefused, and NodeUnreachable.
        """
        return await self._call(lambda connection: connection.rows(operation, arguments))

    async def call_on(self, node: str, operation: str, **arguments: Any) -> Any:
        """As `call`, for another node of the cluster."""
        return await self._call(lambda connection: connection.rows_on(node, operation, arguments))

    async def _call(self, begin: Callable[[ControlConnection], AsyncIterator[list[Any] | Any]]) -> Any:
        async with self._free:
            connection = await ControlConnection.open(self._control_dir)
            try:
                rows: list[Any] = []
                is_listing = False
                async for piece in begin(connection):
                    if not isinstance(piece, list):
                        return piece
                    is_listing = True
                    rows += piece
                return rows if is_listing else None
            finally:
                connection.close()
