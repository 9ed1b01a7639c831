"""The server: a broker as a program of its own, which runs in the foreground until a signal.

The first SIGINT or SIGTERM stops it cleanly: clients get connection.close with 320 CONNECTION_FORCED. A second one ends
the process at once. SIGHUP has a broker with a log file and without a terminal reopen that file and read its
certificates again; it stops any other broker, since its terminal was closed. SIGUSR1, SIGUSR2 and SIGALRM, which would
kill the process, are ignored.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import cast

from .actors.contracts.resources import MemoryStatus
from .actors.node.app import BEGIN_ANEW, BEGIN_STOPPED
from .heap import keep_freed_heap
from .running_node import AppWasStopped, RunningNode, StartError, StartInterrupted, begin
from .runtime.errors import ProcessDown
from .runtime.log_file import LogFile, Period, reopen_log_files
from .runtime.log_format import JsonFormatter, LineFormatter
from .runtime.machine.descriptors import raise_descriptor_limit
from .runtime.machine.port_holder import port_holder
from .runtime.machine.time_slice import SHORT, set_time_slice
from .settings import Settings
from .settings.limits import shown_size
from .settings.management_urls import management_urls
from .store.data_dir.file_limits import REAL_FILES, FileLimits
from .store.disk.progress import NO_PROGRESS, RecoveryProgress
from .version import __version__

log = logging.getLogger("warren.server")

#: Signals that stop the broker, and end the process the second time.
_STOPPING = (signal.SIGINT, signal.SIGTERM)

#: Signals that are ignored, by name because Windows has none of them. The system's own reaction is to end the process.
_IGNORED = ("SIGUSR1", "SIGUSR2", "SIGALRM")

#: The garbage collector runs once this many more containers were created than freed. With lists of 1,000 references a
#: run takes 2 ms.
GARBAGE_BATCH = 1_000

#: A threshold of the garbage collector that is never reached.
NEVER = 1 << 30


class ServerDied(Exception):
    """The broker has ended by itself, without a signal."""


def serve(
    settings: Settings,
    on_ready: Callable[[str], None],
    progress: RecoveryProgress = NO_PROGRESS,
    limits: FileLimits = REAL_FILES,
    is_founder: bool = False,
) -> None:
    """Run a broker on this thread until a signal.

    `on_ready` is called with the start-up report when the broker accepts connections. `progress` is notified of the
    recovery's progress before that. `limits` are the sizes at which the store begins new files. `is_founder`: see
    `Clustering`. A node that its cluster has declared down is started again in this process; so is one whose app an
    operator stops, and it then waits until the app is started.

    Raises `StartError` if the broker cannot start, `ServerDied` if it fails later. A second signal ends the process
    with the exit status 130.
    """
    signals = _Signals()
    # Only the server does this: a program that embeds a broker decides about its heap, its limits and its time slices
    # itself.
    keep_freed_heap()
    raise_descriptor_limit()
    set_time_slice(0, SHORT)
    app_stopped = False
    while (begins := _serve_once(settings, on_ready, progress, limits, is_founder, app_stopped, signals)) is not None:
        app_stopped = begins
        # The run that has ended has left cycles. Before the first start there are none, and a collection would take an
        # eighth of the time of that start.
        gc.collect()


def _serve_once(
    settings: Settings,
    on_ready: Callable[[str], None],
    progress: RecoveryProgress,
    limits: FileLimits,
    is_founder: bool,
    app_stopped: bool,
    signals: _Signals,
) -> bool | None:
    """One run of the node; return whether the app of the next run is stopped, None if there is to be no other run."""
    # The objects that the start creates live long. The collector would examine all of them again and again while they
    # grow in number.
    gc.disable()
    try:
        node = begin(
            partial(
                RunningNode,
                settings,
                thread=False,
                progress=progress,
                on_begin=signals.watch,
                limits=limits,
                is_founder=is_founder,
                app_stopped=app_stopped,
            )
        )
    except AppWasStopped:
        return True
    except StartInterrupted:
        log.info("stopped on %s while it was starting", signals.first or "an operator's command")
        return None
    except StartError as error:
        if app_stopped and not signals.first:
            # The operator who started the app receives the reason. The node goes on with its app stopped, so that the
            # operator can remove the cause and start the app again.
            log.error("%s cannot start its app: %s", settings.node_name, error)
            return True
        holder = port_holder(error.port) if error.errno == errno.EADDRINUSE else ""
        if not holder:
            raise
        raise StartError(f"{error}. The port is in use by {holder}.", error.errno, error.port) from None
    finally:
        _examine_once()
    node.housekeep(partial(gc.collect, 0))
    on_ready(report(settings, node.host, node.port, node.memory, node.tls_port, node.down))
    try:
        reason = node.run_until_interrupted()
    except ProcessDown as error:
        raise ServerDied(f"the broker has ended by itself: {error}; the log above has the reason") from error
    begins_anew = reason in (BEGIN_ANEW, BEGIN_STOPPED) and not signals.first
    if not begins_anew:
        log.info(
            "stopping on %s: closing all connections; a second signal ends it at once",
            signals.first or f"an operator's command ({reason})",
        )
    node.stop()
    if not begins_anew:
        log.info("stopped")
        return None
    return reason == BEGIN_STOPPED


def _examine_once() -> None:
    """Have the garbage collector examine each container once, soon after it was made, and those that exist now never.

    A collection stops all processes. With Python's default thresholds it took 30 to 200 ms when many messages waited or
    a few thousand runs arrived. Processes free their objects by reference counting, and
    `tests/system_crash/test_nothing_left.py` proves it. So the collector is needed only for cycles that other code
    makes, and most of these are garbage soon after they were made. Containers that are in use at their one examination
    are examined again only when memory runs short, before the memory monitor raises its alarm.

    Only the server does this; a program that embeds a broker decides for itself.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_BATCH, NEVER, NEVER)
    gc.enable()


def report(
    settings: Settings,
    host: str,
    port: int,
    memory: MemoryStatus,
    tls_port: int | None = None,
    down: Sequence[str] = (),
) -> str:
    """The start-up report: where the broker listens, how to connect, what is switched on, and how to stop it.

    `memory` and `down` are those of `RunningNode`.
    """
    shown = f"[{host}]" if ":" in host else host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, shown)
    local_only = ", ".join(user for user in settings.loopback_users) or "nobody"
    heartbeat = f"every {settings.heartbeat} s" if settings.heartbeat else "off"
    # The default password is publicly known; any other must not appear in a terminal or a log.
    login = (
        f"{settings.default_user}:{settings.default_pass}"
        if settings.default_pass == "guest" and settings.default_pass_file is None
        else settings.default_user
    )
    tls = []
    if tls_port is not None:
        clients = {
            "none": "",
            "optional": ", client certificates checked",
            "required": ", client certificates required",
        }[settings.tls_verify]
        tls = [
            ("with TLS", f"{shown}:{tls_port} (AMQP 0-9-1{clients})"),
            ("url", f"amqps://{login}@{reachable}:{tls_port}/%2F"),
        ]
    reached = [
        ("listening", f"{shown}:{port} (AMQP 0-9-1, no TLS)"),
        ("url", f"amqp://{login}@{reachable}:{port}/%2F"),
        *tls,
    ]
    if not port:
        reached = [("witness", "votes in its cluster, and has neither queues nor clients")]
    rows = [
        *reached,
        ("node", settings.node_name),
        ("messages", _kept(settings.data_dir)),
        *(
            ("DOWN", f"vhost '{name}' cannot be opened; the log has the reason. Its data is kept for the next start")
            for name in down
        ),
        ("memory", _watermark(memory)),
        *management_urls(settings),
        ("heartbeats", heartbeat),
        ("local logins", f"from this machine only: {local_only}"),
        ("stop", "Ctrl-C, or SIGTERM to process " + str(os.getpid())),
    ]
    lines = [f"  {name:<13} {value}" for name, value in rows]
    return "\n".join([f"warren {__version__} on Python {sys.version.split()[0]}", "", *lines, ""])


def _kept(data_dir: str | None) -> str:
    if data_dir is None:
        return "kept in memory only and lost when the broker stops; --data-dir DIR keeps durable data"
    return f"durable data is kept in {os.path.abspath(data_dir)}; --in-memory keeps nothing"


def _watermark(memory: MemoryStatus) -> str:
    if memory["used"] is None:
        return "cannot be measured on this system, so it never blocks publishers"
    return f"publishers are blocked above {shown_size(memory['limit'])} of {shown_size(memory['total'])}"


def configure_logging(settings: Settings) -> None:
    """Write the log to standard error, or append it to a file, one line for each event. Raises OSError."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.log_file is not None:
        handler = LogFile(
            settings.log_file,
            cast(int, settings.log_rotation_size or 0) or None,
            cast(Period, settings.log_rotation_period),
            settings.log_rotation_count,
        )
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else LineFormatter())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])


class _Signals:
    """Handles the signals of the process: the first one interrupts the node, the second ends the process.

    SIGHUP comes when the terminal is closed, and from systemd right after SIGTERM (`SendSIGHUP`): it stops the broker
    if nothing else has, and never ends the process. A process that was started with `nohup` goes on ignoring it. A
    broker without a terminal that logs to a file receives it from a program that has renamed that file.
    """

    def __init__(self) -> None:
        self._node: RunningNode | None = None
        self.first = ""
        for number in _STOPPING:
            signal.signal(number, self.received)
        for name in _IGNORED:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.received)

    def watch(self, node: RunningNode) -> None:
        """Interrupt `node` on the first signal, at once if that has come already."""
        self._node = node
        if self.first:
            node.interrupt()

    def received(self, number: int, _frame: FrameType | None) -> None:
        if self.first:
            if number in _STOPPING:
                # Not sys.exit: whatever hangs now may hang in an exit handler as well.
                os._exit(130)
            return
        if number not in _STOPPING and not _has_terminal() and reopen_log_files():
            if self._node is not None:
                self._node.reload_certificates()
            return
        self.first = signal.Signals(number).name
        if self._node is not None:
            self._node.interrupt()


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal, which sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
