"""`ControlSession`: one client of the control protocol (`frames`), usually one run of a command.

A client that misbehaves ends its own session only, and a client that neither sends nor reads holds up nobody else:

    it sends no proof in time, or a wrong one       the session ends
    it sends no frame, or a request too many        the session ends
    it does not read its answer                     the operation waits, and after `STALL_SECONDS` the session ends
    it goes away                                    the session ends, and the operation ends where it waits

An operation runs in the session's process, so that a session which ends takes its operation along.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...runtime.contract import Address, Sender
from ...runtime.process import Process
from ...runtime.signal import Signal
from ..context.node_context import NodeContext
from ..context.starting import ToNewControlSession
from ..contracts.node import ToNode
from ..node.operations.registry import Operator
from .answers import answers, refusal
from .frames import (
    FRAME_MAX,
    LARGE,
    PROTOCOL,
    UNPROVED_MAX,
    ControlFrameError,
    FrameBuffer,
    frame,
    unpack,
    unpack_in_steps,
)
from .proof import CHALLENGE_BYTES, is_proof, proof

log = logging.getLogger("warren.control")

READ_BYTES = 256 * 1024

#: Bytes of answers that may wait for the client before the operation waits for it.
OUTPUT_MAX = 256 * 1024

#: Seconds in which a client must have proved that it knows the secret.
PROOF_SECONDS = 10.0

#: Seconds that a client may go without sending a request or reading its answer.
STALL_SECONDS = 60.0

#: Seconds between two checks of these limits.
CHECK_SECONDS = 5.0


class ControlSession(Process):
    """See the module."""

    contract = ToNewControlSession

    def __init__(self) -> None:
        super().__init__()
        self.sock: Any = None
        self.output: deque[memoryview] = deque()
        self.output_size = 0
        self.is_proved = False
        self.is_busy = False
        #: Whether the session ends as soon as the output is written.
        self.hangs_up = False
        self.watching = (False, False)
        self.drained = Signal(self)

    def on_start(
        self, sender: Sender, context: NodeContext, node: Address[ToNode], fd: int, secret: bytes | None
    ) -> None:
        self.context, self.node, self.secret = context, node, secret
        self.sock, self.fd = self.sockets.adopt(fd), fd
        self.operator = Operator(self, context, node)
        self.is_proved = secret is None
        self.challenge = None if secret is None else self.random_bytes(CHALLENGE_BYTES)
        self.input = FrameBuffer(FRAME_MAX if self.is_proved else UNPROVED_MAX)
        self.began = self.progressed = self.now()
        self._put({"hello": PROTOCOL, "node": context.node_name, "challenge": self.challenge})
        self.start_timer(CHECK_SECONDS)

    # -- input ---

    def on_readable(self, fd: int) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.stop("the client has gone")
            return
        self.progressed = self.now()
        self.input.feed(data)
        try:
            self._take_frames()
        except ControlFrameError as error:
            self._cut_off(error)

    def _cut_off(self, error: ControlFrameError) -> None:
        log.info("a command was cut off: %s", error)
        self._refuse("usage", str(error))

    def _take_frames(self) -> None:
        while not self.hangs_up and (body := self.input.next_body()) is not None:
            if not self.is_proved:
                self._check_proof(unpack(body))
            elif self.is_busy:
                raise ControlFrameError("a request came before the last one was answered")
            elif len(body) > LARGE:
                self.is_busy = True
                self.spawn(self._take_large(body))
            else:
                self._request(unpack(body))

    async def _take_large(self, body: bytes) -> None:
        steps = unpack_in_steps(body)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    self._request(stop.value)
                    return
                await self.next_turn()
        except ControlFrameError as error:
            self._cut_off(error)

    def _check_proof(self, message: Mapping[str, object]) -> None:
        secret, challenge, theirs = self.secret, self.challenge, message.get("challenge")
        assert secret is not None and challenge is not None
        if not isinstance(theirs, bytes) or len(theirs) != CHALLENGE_BYTES:
            raise ControlFrameError("a client must send a proof and a challenge first")
        if not is_proof(message.get("proof"), secret, "client", challenge, theirs):
            log.warning("a command with a wrong secret was refused")
            self._refuse("unavailable", "the secret is not the one of this node")
            return
        self.is_proved = True
        self.input.limit = FRAME_MAX
        self._put({"proof": proof(secret, "node", challenge, theirs)})

    def _request(self, message: Mapping[str, object]) -> None:
        name, arguments = message.get("operation"), message.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ControlFrameError("a request names an operation and has a map of arguments")
        self.is_busy = True
        self.spawn(self._answer_to(name, arguments))

    # -- operations ---

    async def _answer_to(self, name: str, arguments: Mapping[str, object]) -> None:
        async for answer in answers(self.operator, name, arguments):
            if "rows" not in answer:
                self.is_busy = False
                self.progressed = self.now()
                self._put(answer)
                return
            self._put(answer)
            if self.output_size > OUTPUT_MAX:
                await self.drained.wait_for(lambda: self.output_size <= OUTPUT_MAX)
            else:
                await self.next_turn()

    # -- output ---

    def _put(self, message: Mapping[str, object]) -> None:
        try:
            data = frame(message)
        except (ValueError, OverflowError, TypeError) as error:
            data = frame(refusal("software", f"the answer cannot be sent: {error}"))
        if not self.output:
            self.progressed = self.now()
        self.output.append(memoryview(data))
        self.output_size += len(data)

    def _refuse(self, kind: str, text: str) -> None:
        self.hangs_up = True
        self._put(refusal(kind, text))

    def on_writable(self, fd: int) -> None:
        """Do nothing: `after_batch` writes."""

    def after_batch(self) -> None:
        if self.sock is None:
            return
        try:
            while self.output:
                count = self.sock.send(self.output[0])
                self.progressed = self.now()
                self.output_size -= count
                if count < len(self.output[0]):
                    self.output[0] = self.output[0][count:]
                else:
                    self.output.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.stop("the client has gone")
            return
        if self.output_size <= OUTPUT_MAX:
            self.drained.wake_all()
        if self.hangs_up and not self.output:
            self.stop("refused")
            return
        wanted = (not self.hangs_up, bool(self.output))
        if wanted != self.watching:
            self.watching = wanted
            self.watch(self.fd, *wanted)

    # -- the end ---

    def on_timer(self, payload: None) -> None:
        now = self.now()
        if not self.is_proved and now - self.began > PROOF_SECONDS:
            self.stop("no proof in time")
        elif (self.output or not self.is_busy) and now - self.progressed > STALL_SECONDS:
            self.stop("the client does nothing")
        else:
            self.start_timer(CHECK_SECONDS)

    def on_exit(self) -> None:
        if hasattr(self, "operator"):
            self.operator.close()
        if self.sock is not None:
            self.unwatch(self.fd)
            with suppress(OSError):
                self.sock.close()
            self.sock = None
