"""`RunningNode`: a node that runs, with its system of actors, for callers that are not actors.

`Broker` runs one on a thread of its own, `server` runs one on the calling thread.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from thespian.actors import ActorSystem

from .actors.connection.listener import ListenError
from .actors.connection.tls.tls_context import TlsError
from .actors.context.clustering import Clustering
from .actors.context.extensions import NO_EXTENSIONS, Extensions
from .actors.context.starting import to_new_node
from .actors.contracts.channel import ToDirectClient
from .actors.contracts.membership import AppStopped, CountsAsDown, MembershipError, StoppedWaiting
from .actors.contracts.node import NodeError, ToNode, to_node
from .actors.control.listener import ControlError
from .actors.disk.errors import StorageError
from .actors.node.operations.operating.masters import MOVING_SECONDS
from .actors.node.operations.registry import OperationError
from .actors.node.process import NodeSupervisor
from .amqp.errors import AmqpError
from .runtime.contract import Address, Answer, C, ProcessMessage
from .runtime.errors import ProcessDown, ProcessTimeout
from .runtime.long_turn import LongTurnRecord
from .runtime.loop.loop_base import LoopBase
from .runtime.loop.outside import OutsideClient
from .runtime.machine.forks import keep_from_forks
from .runtime.system.address import LoopAddress
from .settings import Settings
from .store.data_dir.data_dir import DataDirError, claim
from .store.data_dir.file_limits import REAL_FILES, FileLimits
from .store.disk.progress import NO_PROGRESS, RecoveryProgress
from .store.disk.real_disk import RealDisk

log = logging.getLogger("warren.node")

#: Seconds after which a call on the node counts as hanging and is given up; calls take far less.
CALL_TIMEOUT = 30.0

#: Seconds that the actors may take to end after every connection is closed.
SHUTDOWN_SECONDS = 1.0

#: Seconds that a node with a data directory may take to write what makes its next start fast. A node that is killed
#: before loses no confirmed message.
STORE_SECONDS = 60.0

#: Random bytes by which the runs of a node are told apart.
INCARNATION_BYTES = 8

#: Runs of a node that may be lost one after the other while they start, before the start fails.
LOST_RUNS_MAX = 10

#: Seconds between two checks of `wait_idle` while the node is busy.
IDLE_CHECK_INTERVAL = 0.002


class BrokerError(Exception):
    """The broker refused a call.

    `code` (404), `name` (`NOT_FOUND`) and `text` are what a client would get in channel.close or connection.close.
    """

    def __init__(self, code: int, name: str, text: str):
        super().__init__(f"{code} {name} - {text}")
        self.code = code
        self.name = name
        self.text = text


class _DeclaredDown(BrokerError):
    """The broker refused a call because its cluster has declared this run of the node down."""


class StartError(Exception):
    """The broker cannot start. The text names what failed, the reason and the way out.

    `errno` and `port` are set if the operating system refused the address.
    """

    def __init__(self, text: str, errno: int | None = None, port: int = 0):
        super().__init__(text)
        self.errno = errno
        self.port = port


class DataDirUnusable(StartError):
    """The broker cannot start because of its data directory."""


class ClusterUnreachable(StartError):
    """The broker cannot become a member of its cluster, or waited too long for the other members."""


class RunLost(StartError):
    """The cluster has declared this run of the node down while it was starting; another run may succeed."""


class StartInterrupted(Exception):
    """`interrupt` was called before the node was ready."""


class AppWasStopped(StartInterrupted):
    """The run was ended before the node was ready, and another one is to begin whose app is stopped."""


class _ProgressWhileRunning(RecoveryProgress):
    """Passes progress on, and ends the recovery in other threads when the node has ended meanwhile."""

    def __init__(self, base: LoopBase, progress: RecoveryProgress):
        self._base = base
        self._progress = progress

    def enter(self, vhost: str) -> RecoveryProgress:
        return _ProgressWhileRunning(self._base, self._progress.enter(vhost))

    def begin(self, phase: str, total: int) -> None:
        self._progress.begin(phase, total)

    def advance(self, size: int) -> None:
        if self._base.is_closed():
            raise StartInterrupted
        self._progress.advance(size)

    def leave(self) -> None:
        self._progress.leave()


class RunningNode:
    """A node, from its start, which the constructor waits for, to `stop`.

    Raises `StartError` if the node cannot listen or cannot use its data directory. It holds the claim on that directory
    from before its start until everything in it has ended.

    host, port    where it accepts connections; empty and 0 if it is the witness of a cluster
    tls_port      where it accepts connections with TLS; None without TLS
    memory        the status of its memory monitor at the start; 'used' is None if that cannot be measured
    down          the virtual hosts that could not be started

    With `thread` the node runs on a thread of its own. Without, it runs on the caller's thread, during
    `run_until_interrupted` and during each call that waits for an answer. `on_begin` is called with the node before it
    recovers its data directory, which may take long; `interrupt` ends the recovery with `StartInterrupted`. `progress`
    is notified of the recovery's progress. `limits` are the sizes at which the store begins new files. `is_founder`:
    see `Clustering`; a node without a `cluster_port` has none. With `app_stopped` the node is not ready before an
    operator starts its app; `AppWasStopped` is raised if another run is to begin instead.
    """

    def __init__(
        self,
        settings: Settings,
        thread: bool = True,
        extensions: Extensions = NO_EXTENSIONS,
        progress: RecoveryProgress = NO_PROGRESS,
        on_begin: Callable[[RunningNode], None] = lambda node: None,
        limits: FileLimits = REAL_FILES,
        is_founder: bool = False,
        app_stopped: bool = False,
    ):
        self._stop_timeout = settings.stop_timeout / 1000
        #: The operating-system process that runs the node. A process forked from it has a copy of this object but no
        #: thread that runs the node, so a control that is called there raises an error, because it would otherwise wait
        #: for ever.
        self._process = os.getpid()
        try:
            self._claim = None if settings.data_dir is None else claim(settings.data_dir, settings.node_name)
        except DataDirError as error:
            raise DataDirUnusable(str(error)) from None
        if self._claim is not None:
            keep_from_forks(self._claim)
        clustering = clustering_of(settings, is_founder)
        # Other nodes recognise the processes of this run by the name of their system.
        name = f"{settings.node_name}-{os.urandom(INCARNATION_BYTES).hex()}"
        self._base = LoopBase(name=name, thread=thread, shutdown_seconds=SHUTDOWN_SECONDS)
        self._is_interrupted = self._has_started = False
        #: Whether other nodes are to lead the mirrored queues when this one stops. They are not if they stop as well.
        self.moves_masters = clustering is not None
        #: The function that ends a pause, while the node stands still.
        self._go_on: Callable[[], None] | None = None
        try:
            on_begin(self)
            if settings.management and settings.control_dir is None:
                # The management process reaches the node there. `ControlListener` removes the directory in the end.
                settings = replace(settings, control_dir=tempfile.mkdtemp(prefix="warren-"))
            system = self._system = ActorSystem(systemBase=self._base, transientUnique=True)
            self._client = OutsideClient(system)
            self._address: Address[ToNode] = system.createActor(NodeSupervisor)
            # Recovering a data directory has no time limit: a node that gave up would give up again at every start.
            facts = self._ask(
                self._address,
                to_new_node.start(
                    settings,
                    extensions,
                    RealDisk,
                    None,
                    _ProgressWhileRunning(self._base, progress),
                    limits,
                    clustering,
                    app_stopped,
                ),
                CALL_TIMEOUT if self._claim is None and clustering is None and not app_stopped else None,
            )
        except ListenError as error:
            self._end()
            raise StartError(str(error), error.errno, error.port) from None
        except StorageError as error:
            self._end()
            raise DataDirUnusable(str(error)) from None
        except AppStopped:
            self._end()
            raise AppWasStopped from None
        except StoppedWaiting:
            self._end()
            raise StartInterrupted from None
        except MembershipError as error:
            self._end()
            raise ClusterUnreachable(str(error)) from None
        except _DeclaredDown as error:
            self._end()
            raise RunLost(str(error)) from None
        except (ControlError, TlsError, BrokerError) as error:
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
        self.host = facts["host"]
        self.port = facts["port"]
        self.tls_port = facts["tls_port"]
        self.memory = facts["memory"]
        self.down = facts["down"]
        self._direct = facts["direct"]
        self._has_started = True

    def stop(self, reason: str = "shutdown") -> None:
        """Close every connection with 320 and `reason`, then end all actors.

        This takes at most the setting `stop_timeout` and `SHUTDOWN_SECONDS`, or `STORE_SECONDS` with a data directory;
        a member of a cluster may take `MOVING_SECONDS` more. Raises RuntimeError in a forked process.
        """
        self._check_process()
        self.resume()
        seconds = self._stop_timeout + (SHUTDOWN_SECONDS if self._claim is None else STORE_SECONDS)
        if self.moves_masters:
            seconds += MOVING_SECONDS
        try:
            # If the node has ended by itself, or takes longer, the shutdown below ends the rest.
            with suppress(ProcessDown, ProcessTimeout):
                self._client.ask(self._address, to_node.stop(reason, self.moves_masters), seconds)
        finally:
            self._client.close()
            self._end()

    def kill(self) -> None:
        """End as a process does that is killed: nothing is written or announced any more, and connections break.

        Raises RuntimeError in a forked process.
        """
        self._check_process()
        self.resume()
        self._client.close()
        self._end(self._base.kill)

    def pause(self) -> None:
        """Stand still, as a process that gets SIGSTOP, until `resume`. Does nothing if the node stands still already.

        Raises RuntimeError in a forked process.
        """
        self._check_process()
        if self._go_on is None:
            self._go_on = self._base.pause()

    def resume(self) -> None:
        """Go on after `pause`. Does nothing if the node does not stand still."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    @property
    def is_of_this_process(self) -> bool:
        """False in a process that was forked from the one in which the node runs."""
        return self._process == os.getpid()

    def _check_process(self) -> None:
        if not self.is_of_this_process:
            raise RuntimeError(
                f"this broker runs in process {self._process}, from which process {os.getpid()} was forked: only that "
                "process can control it. Clients of the broker work here, over connections opened after the fork"
            )

    def _end(self, end: Callable[[], bool] | None = None) -> None:
        has_ended = (end or self._base.shutdown)()
        if self._claim is None:
            return
        if has_ended:
            self._claim.release()
        else:
            # Another broker must not claim the directory while a thread of this one may still write.
            log.error(
                "data directory '%s' stays in use until this process ends, because the disk does not answer",
                self._claim.directory.path,
            )

    def run_until_interrupted(self) -> str:
        """Run on the calling thread until `interrupt`, or until an operator asks the node to stop.

        Returns the operator's reason, or an empty text. Raises ProcessDown if the node ends by itself.
        """
        with suppress(ProcessTimeout):
            return self._client.ask(self._address, to_node.await_end())
        return ""

    def await_anew(self) -> bool:
        """Wait until the node is to be stopped and started again, because its cluster has declared it down (CL-55).

        Returns False if the node has ended before. Call it on a thread of its own, which it blocks.
        """
        client = OutsideClient(self._system)
        try:
            return client.ask(self._address, to_node.await_anew())
        except (ProcessDown, ProcessTimeout):
            return False
        finally:
            client.close()

    def housekeep(self, function: Callable[[], object]) -> None:
        """Have the node call `function` again and again between the turns of its processes, at most every 20 ms."""
        self._base.housekeep = function

    def abandon(self) -> None:
        """Have the constructor, which waits in another thread, raise StartError."""
        self._base.kill()

    def interrupt(self) -> None:
        """End the start or `run_until_interrupted`; may be called from a signal handler."""
        self._is_interrupted = True
        # The call goes through the loop's inbox, so that a signal that comes just before the loop runs takes effect.
        self._base.post(self._base.stop)

    def reload_certificates(self) -> None:
        """Have the files of certificates read again; may be called from a signal handler. A node that still starts
        reads them anyway.
        """
        if self._has_started:
            self._client.tell(self._address, to_node.reload_certificates())

    def ask_node(self, request: ProcessMessage[ToNode, Answer]) -> Answer:
        """Ask the node supervisor.

        Raises `BrokerError` if the broker refuses the request, `LimitError` for a limit that cannot be read.
        """
        return self._ask(self._address, request, CALL_TIMEOUT)

    def operate(self, operation: str, **arguments: object) -> Any:
        """Run an operation of `actors/node/operations`. Raises `BrokerError` 530 if it is refused."""
        return self.ask_node(to_node.operate(operation, arguments))

    def ask_direct(self, request: ProcessMessage[ToDirectClient, Answer]) -> Answer:
        """Ask the client that uses a channel without a socket. Raises `BrokerError` if the broker refuses."""
        return self._ask(self._direct, request, CALL_TIMEOUT)

    def ask_named(self, name: str, request: ProcessMessage[Any, Answer]) -> Answer:
        """Ask the process that has this name in the node (`runtime/system/local_names.py`)."""
        return self._ask(LoopAddress(f"{self._base.name}/{name}"), request, CALL_TIMEOUT)

    def _ask(self, address: Address[C], request: ProcessMessage[C, Answer], timeout: float | None) -> Answer:
        self._check_process()
        try:
            return self._client.ask(address, request, timeout)
        except AmqpError as error:
            refused = _DeclaredDown if isinstance(error, CountsAsDown) else BrokerError
            raise refused(error.code, error.name, error.text) from None
        except (NodeError, OperationError) as error:
            raise BrokerError(530, "NOT_ALLOWED", str(error)) from None
        except ProcessDown as error:
            raise BrokerError(541, "INTERNAL_ERROR", f"the broker has ended: {error}") from error

    def stats(self) -> tuple[list[LongTurnRecord], int]:
        """The longest turns of the loop, the longest one first, and how many messages reached no process."""
        self._check_process()
        base = self._base
        seen: tuple[list[LongTurnRecord], int] = base.call(
            lambda: (list(base.watchdog.longest), base.undelivered.count)
        )
        return seen

    def wait_idle(self, timeout: float) -> None:
        """Wait until the node has nothing to do; see `Broker.wait_idle`."""
        self._check_process()
        wait_until_idle(lambda: self._base.call(self._base.busy_with), timeout)


def clustering_of(settings: Settings, is_founder: bool = False) -> Clustering | None:
    """The processes of a node with a cluster port; None for a node that is alone."""
    if settings.cluster_port is None:
        return None
    # Imported here, because a node that is alone needs none of these modules.
    from .cluster.membership.process import Members
    from .cluster.metadata.process import ClusterMetadata
    from .mirror.node_mirroring import NodeMirroring

    return Clustering(Members, ClusterMetadata, is_founder, NodeMirroring())


def wait_until_idle(busy_with: Callable[[], str], timeout: float) -> None:
    """Wait until `busy_with` returns an empty text twice in a row.

    The first check may miss calls that other threads have just made; the loop takes them in before the second. Raises
    TimeoutError, with the last text, after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    quiet = 0
    while quiet < 2:
        busy = busy_with()
        quiet = 0 if busy else quiet + 1
        if busy and time.monotonic() >= deadline:
            raise TimeoutError(f"the broker is not idle after {timeout} s: {busy}")
        if busy:
            time.sleep(IDLE_CHECK_INTERVAL)


def begin(start: Callable[[], RunningNode]) -> RunningNode:
    """What `start` returns, a new `RunningNode`.

    A node that stands still while it starts, because its machine is busy, may be declared down by its cluster. Then
    `start` is called again, for another run, and nobody needs to do anything (CL-55).
    """
    for _ in range(LOST_RUNS_MAX - 1):
        try:
            return start()
        except RunLost as error:
            log.warning("%s. It starts again", error)
    return start()
