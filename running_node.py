"""A node that runs: its system of actors, and the way in for threads that are not actors.

`Broker` runs one on a thread of its own, `server` one on the calling thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from thespian.actors import ActorSystem

from .actors.channel.contract import ToDirectClient
from .actors.connection.listener import ListenError
from .actors.connection.tls_context import TlsError
from .actors.disk.errors import StorageError
from .actors.node.contract import ToNode, to_node
from .actors.node.extensions import NO_EXTENSIONS, Extensions
from .actors.node.process import NodeError, NodeSupervisor
from .amqp.errors import AmqpError
from .runtime.contract import Address, Answer, C, Message
from .runtime.errors import ProcessDown, ProcessTimeout
from .runtime.loop.loop_base import LoopBase
from .runtime.loop.outside import OutsideClient
from .settings import Settings
from .store.data_dir.data_dir import DataDirError, claim
from .store.data_dir.file_limits import REAL_FILES, FileLimits
from .store.disk.progress import NO_PROGRESS, Progress
from .store.disk.real_disk import RealDisk

log = logging.getLogger("warren.node")

#: Seconds a call on the node may take before it is given up as hanging; no call comes near it.
CALL_TIMEOUT = 30.0

#: Seconds the actors may take to end once every connection is closed.
SHUTDOWN_SECONDS = 1.0

#: Seconds a node with a data directory may take to put everything in its place. It may be killed before: what was confirmed is safe without it.
STORE_SECONDS = 60.0

#: How often `wait_idle` looks while the node is busy, in seconds.
IDLE_LOOK_INTERVAL = 0.002


class BrokerError(Exception):
    """The broker refused: `code` (404), `name` (`NOT_FOUND`) and `text` as a client would see them in channel.close or connection.close."""

    def __init__(self, code: int, name: str, text: str):
        super().__init__(f"{code} {name} - {text}")
        self.code = code
        self.name = name
        self.text = text


class StartError(Exception):
    """The broker cannot start; the text says what, why, and the way out. `errno` and `port` are set if the operating system refused the address."""

    def __init__(self, text: str, errno: int | None = None, port: int = 0):
        super().__init__(text)
        self.errno = errno
        self.port = port


class DataDirUnusable(StartError):
    """It is the data directory that keeps the broker from starting."""


class StartInterrupted(Exception):
    """`interrupt` came before it was ready."""


class _ForSomebody(Progress):
    """Ends the work in other threads when the node has ended in the middle of it."""

    def __init__(self, base: LoopBase, progress: Progress):
        self._base = base
        self.enter, self.begin, self.leave = progress.enter, progress.begin, progress.leave  # type: ignore[method-assign]
        self._advance = progress.advance

    def advance(self, size: int) -> None:
        if self._base.is_closed():
            raise StartInterrupted
        self._advance(size)


class RunningNode:
    """Made by starting it: `host` and `port` accept connections from then on, and so does `tls_port` unless it is None. Raises `StartError` when it
    cannot listen there or use its data directory,
    which is its own from before it starts until everything in it has ended.
    `memory` is the status of its memory monitor at the start: 'total', 'limit' and 'used' (None if it cannot be measured) in bytes; `down` are the virtual
    hosts that could not be started then.

    With `thread` it runs on a thread of its own; without, on the caller's, inside `run_until_interrupted` and while it is asked something. `on_begin` is given
    it before it recovers what its data directory has, which may take long: `interrupt` ends that too, with `StartInterrupted`. `progress` hears how far it is.
    `limits` are when its files are full.
    """

    def __init__(
        self,
        settings: Settings,
        thread: bool = True,
        extensions: Extensions = NO_EXTENSIONS,
        progress: Progress = NO_PROGRESS,
        on_begin: Callable[[RunningNode], None] = lambda node: None,
        limits: FileLimits = REAL_FILES,
    ):
        self._stop_timeout = settings.stop_timeout / 1000
        try:
            self._claim = None if settings.data_dir is None else claim(settings.data_dir, settings.node_name)
        except DataDirError as error:
            raise DataDirUnusable(str(error)) from None
        self._base = LoopBase(thread=thread, shutdown_seconds=SHUTDOWN_SECONDS)
        self._is_interrupted = False
        try:
            on_begin(self)
            system = ActorSystem(systemBase=self._base, transientUnique=True)
            self._client = OutsideClient(system)
            self._address: Address[ToNode] = system.createActor(NodeSupervisor)
            # With a data directory it takes as long as what is there takes to be recovered: a node that gave up would give up again at every start.
            start = to_node.start(settings, extensions, RealDisk, None, _ForSomebody(self._base, progress), limits)
            facts = self._ask(self._address, start, CALL_TIMEOUT if self._claim is None else None)
        except ListenError as error:
            self._end()
            raise StartError(str(error), error.errno, error.port) from None
        except StorageError as error:
            self._end()
            raise DataDirUnusable(str(error)) from None
        except (TlsError, BrokerError) as error:
            self._end()
            raise StartError(str(error)) from None
        except ProcessTimeout:
            self._end()
            if self._is_interrupted:
                raise StartInterrupted from None
            raise
        except BaseException:
            self._end()
            raise
        self.host: str = facts["host"]
        self.port: int = facts["port"]
        self.tls_port: int | None = facts["tls_port"]
        self.memory = facts["memory"]
        self.down: list[str] = facts["down"]
        self._direct = facts["direct"]

    def stop(self, reason: str = "shutdown") -> None:
        """Close every connection with 320 and `reason`, then end all actors; bounded by the setting `stop_timeout` and a little."""
        try:
            # A node that ended by itself, or takes longer, is ended by the shutdown that follows.
            with suppress(ProcessDown, ProcessTimeout):
                self._client.ask(
                    self._address,
                    to_node.stop(reason),
                    self._stop_timeout + (SHUTDOWN_SECONDS if self._claim is None else STORE_SECONDS),
                )
        finally:
            self._client.close()
            self._end()

    def _end(self) -> None:
        has_ended = self._base.shutdown()
        if self._claim is None:
            return
        if has_ended:
            self._claim.release()
        else:
            # Another broker must not come in while a thread of this one may still write.
            log.error(
                "data directory '%s' stays in use until this process ends: the disk does not answer",
                self._claim.directory.path,
            )

    def run_until_interrupted(self) -> None:
        """Run on the calling thread until `interrupt`. Raises ProcessDown if the node ends by itself."""
        with suppress(ProcessTimeout):
            self._client.ask(self._address, to_node.await_end())

    def interrupt(self) -> None:
        """End the start or `run_until_interrupted`; may be called from a signal handler."""
        self._is_interrupted = True
        # By way of the loop's inbox, so that a signal that comes just before it runs is not lost.
        self._base.post(self._base.stop)

    def ask_node(self, request: Message[ToNode, Answer]) -> Answer:
        """The node supervisor's answer. Raises `BrokerError` for what the broker refuses, `LimitError` for a limit that cannot be read."""
        return self._ask(self._address, request, CALL_TIMEOUT)

    def ask_direct(self, request: Message[ToDirectClient, Answer]) -> Answer:
        """The answer of the client that drives a channel without a socket. Raises `BrokerError`."""
        return self._ask(self._direct, request, CALL_TIMEOUT)

    def _ask(self, address: Address[C], request: Message[C, Answer], timeout: float | None) -> Answer:
        try:
            return self._client.ask(address, request, timeout)
        except AmqpError as error:
            raise BrokerError(error.code, error.name, error.text) from None
        except NodeError as error:
            raise BrokerError(530, "NOT_ALLOWED", str(error)) from None
        except ProcessDown as error:
            raise BrokerError(541, "INTERNAL_ERROR", f"the broker has ended: {error}") from error

    def wait_idle(self, timeout: float) -> None:
        """See `Broker.wait_idle`."""
        wait_until_idle(lambda: self._base.call(self._base.busy_with), timeout)


def wait_until_idle(busy_with: Callable[[], str], timeout: float) -> None:
    """Wait until `busy_with` says nothing twice in a row: what the first look could not see (calls other threads had just made) the loop has taken in
    before the second. Raises TimeoutError with its last words after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    quiet = 0
    while quiet < 2:
        busy = busy_with()
        quiet = 0 if busy else quiet + 1
        if busy and time.monotonic() >= deadline:
            raise TimeoutError(f"the broker is not idle after {timeout} s: {busy}")
        if busy:
            time.sleep(IDLE_LOOK_INTERVAL)
