"""A broker process that is killed and started again on one data directory, and what it logged."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

START_SECONDS = 30.0
STOP_SECONDS = 30.0

# `warren start`, with files so small that segments, journal files and message store files begin, end and are given up many times in a second.
_PROGRAM = """
import re, sys
from warren import server
from warren.settings import Settings
from warren.store.data_dir.file_limits import REAL_FILES, FileLimits

data_dir, entries, journal_limit, store_limit, fault = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
limits = FileLimits(journal_limit, store_limit, entries) if entries else REAL_FILES
exec(fault)
server.configure_logging("info")
print("loaded", flush=True)
server.serve(Settings(data_dir=data_dir, port=0), on_ready=lambda report: print("ready", re.search(r"listening +[^ ]+:([0-9]+)", report)[1], flush=True), limits=limits)
"""

SMALL = (256, 1 << 18, 1 << 19)
AS_IT_IS = (0, 0, 0)


class BrokerFailed(Exception):
    """It did not start, or not stop, as it should."""


class TorturedBroker:
    """`limits` are the entries of a segment and the octets of a file of the journal and of a message store. `fault` is Python to spoil it with."""

    def __init__(self, data_dir: Path, log: Path, limits: tuple[int, int, int] = AS_IT_IS, fault: str = "") -> None:
        self.log = log
        self._command = [sys.executable, "-c", _PROGRAM, str(data_dir), *map(str, limits), fault]
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""  # and not read as a line yet; a file object's own buffer would hide it from `select`

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def begin(self) -> None:
        """Start; returns when it has loaded its code and begins to recover."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, bufsize=0, cwd="/")
        self._said = b""
        self._read("loaded")

    def url(self) -> str:
        """Where it accepts connections; returns when it does."""
        return f"amqp://guest:guest@127.0.0.1:{self._read('ready')}/%2F"

    def is_ready(self, seconds: float) -> bool:
        """Whether it says something, or ends, within so many seconds from now."""
        return b"\n" in self._said or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def _read(self, wanted: str) -> str:
        """What follows on that line."""
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            if not self.is_ready(START_SECONDS):
                raise BrokerFailed(f"it was not {wanted} within {START_SECONDS:.0f} s")
            said = os.read(self.process.stdout.fileno(), 4096)
            if not said:
                raise BrokerFailed(f"it ended with exit code {self.process.wait()} before it was {wanted}")
            self._said += said
        line, _, self._said = self._said.partition(b"\n")
        assert line.startswith(wanted.encode()), f"{line!r} instead of {wanted}"
        return line.decode().removeprefix(wanted).strip()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = STOP_SECONDS) -> bool:
        """After `terminate`: whether it has ended by itself within so many seconds. Raises BrokerFailed if it did, but not cleanly."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._end()
        if code:
            raise BrokerFailed(f"it stopped with exit code {code}")
        return True

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def _end(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._process = None

    def __enter__(self) -> TorturedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()
