"""`Management`: starts the management process beside the node, reads its log, and starts it again if it ends.

The process (`warren.management`) is a program of its own, which serves the HTTP API. Three pipes connect it with the
node: its input, which has the configuration and ends with the node, so that the process ends too, whatever ended the
node; its output, lines of JSON with its log and its ports, whose end is the end of the process; and its errors, which
are those of the node. Everything else goes over the control protocol.

If the process cannot listen, or ends for any other reason, the broker goes on, and the process is started again.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterable
from contextlib import suppress

from ...runtime.contract import Sender
from ...runtime.machine.forks import keep_from_forks
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..context.recent_log import RecentLog
from ..context.starting import ToNewManagement
from .config import Config

log = logging.getLogger("warren.management")

#: Seconds until the process is started again: the first time, and at most. Each failure doubles them.
RESTART, RESTART_MAX = 1.0, 30.0

#: A process that has run for this many seconds counts as healthy: when it ends, the wait begins with `RESTART` again.
RUNS_AFTER = 60.0

#: Seconds that the process has to end when the node stops.
END_SECONDS = 5.0

#: Bytes of a line of its output. A longer one is cut.
LINE_MAX = 1 << 20


class Management(Process):
    """See the module."""

    contract = ToNewManagement

    def __init__(self) -> None:
        super().__init__()
        self.child: subprocess.Popen[bytes] | None = None
        #: The descriptor of its output while that is watched.
        self.fd = -1
        self.line = b""
        self.known_ports: dict[str, int] = {}
        self.delay = RESTART
        self.is_ending = False
        #: The newest lines of the log, which this process has opened.
        self.recent_log: RecentLog | None = None

    async def on_start(self, sender: Sender, context: NodeContext) -> None:
        self.context = context
        if os.name == "nt":
            log.warning("there is no management process on Windows, whose pipes cannot be watched; the broker goes on")
            return
        self.recent_log = context.recent_log
        self.recent_log.open()
        keep_from_forks(self)
        await self._begin()

    def descriptors(self) -> Iterable[int]:
        """The descriptor of the process's input, which ends only when no process has it any more."""
        return () if self.child is None or self.child.stdin is None else (self.child.stdin.fileno(),)

    async def _begin(self) -> None:
        self.began = self.now()
        line = Config.of(self.context.settings).to_json().encode() + b"\n"
        try:
            child = await self.run_blocking(_start, line)
        except OSError as error:
            log.error("the management process cannot be started: %s", error)
            self._begin_later()
            return
        if self.is_ending:
            await self.run_blocking(_end, child)
            return
        self.child, self.line = child, b""
        assert child.stdout is not None
        self.fd = child.stdout.fileno()
        self.watch(self.fd)

    def on_readable(self, fd: int) -> Coroutine[object, None, None] | None:
        try:
            data = os.read(fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            self.unwatch(fd)
            self.fd = -1
            return self._ended()
        *lines, self.line = (self.line + data).split(b"\n")
        self.line = self.line[:LINE_MAX]
        for line in lines:
            self._take(line)
        return None

    def _take(self, line: bytes) -> None:
        """Handle one line of the process's output: its ports, a line of its log, or why it cannot listen."""
        try:
            message = json.loads(line)
        except ValueError:
            message = {"log": ["warning", line.decode("utf-8", "replace")]}
        if "ready" in message:
            self.known_ports = message["ready"]
            where = ", ".join(f"{port} ({protocol})" for protocol, port in self.known_ports.items())
            log.info("management listens on port %s", where)
        elif "failed" in message:
            log.warning("%s. The broker goes on without the HTTP API, and tries again", message["failed"])
        elif "log" in message:
            level, text = message["log"]
            log.log(logging.getLevelNamesMapping().get(str(level).upper(), logging.WARNING), "%s", text)

    async def _ended(self) -> None:
        """Handle the end of the process, which has closed its output."""
        child, self.child, had_ports = self.child, None, bool(self.known_ports)
        self.known_ports = {}
        if child is None:
            return
        status = await self.run_blocking(_end, child)
        if self.is_ending:
            return
        if had_ports:
            log.warning("the management process has ended (exit status %s); it is started again", status)
        if self.now() - self.began > RUNS_AFTER:
            self.delay = RESTART
        self._begin_later()

    def _begin_later(self) -> None:
        self.start_timer(self.delay)
        self.delay = min(self.delay * 2, RESTART_MAX)

    async def on_timer(self, payload: None) -> None:
        if not self.is_ending:
            await self._begin()

    def on_ports(self, sender: Sender) -> dict[str, int]:
        return self.known_ports

    async def on_end(self, sender: Sender) -> bool:
        self.is_ending = True
        child, self.child = self.child, None
        if self.fd >= 0:
            self.unwatch(self.fd)
            self.fd = -1
        if child is not None:
            await self.run_blocking(_end, child)
        return True

    def on_exit(self) -> None:
        self.is_ending = True
        if self.recent_log is not None:
            self.recent_log.shut()
        if self.fd >= 0:
            self.unwatch(self.fd)
            self.fd = -1
        child, self.child = self.child, None
        if child is not None:
            # Kill the process instead of ending it in order, because an actor that ends cannot wait for another thread.
            child.kill()
            _end(child)


def _start(line: bytes) -> subprocess.Popen[bytes]:
    """Start the process and give it its configuration. Raises OSError."""
    # -P keeps the working directory off the import path, where a folder may have the name of a library.
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "warren.management"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(line)
        child.stdin.flush()
        os.set_blocking(child.stdout.fileno(), False)
    except OSError:
        child.kill()
        _end(child)
        raise
    return child


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the process and return its exit status. Waits for it."""
    assert child.stdin is not None and child.stdout is not None
    with suppress(OSError):
        child.stdin.close()
    try:
        status = child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        status = child.wait()
    child.stdout.close()
    return status
