"""A broker process that tests kill and start again on the same data directory."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

START_SECONDS = 300.0
STOP_SECONDS = 300.0

#: `warren start` with very small files, so that many segments, journal files and message store files are begun,
#: completed and deleted every second.
#: The server switches the garbage collector on when it has started.
_PROGRAM = """
import gc
gc.disable()
import json, re, sys
from warren import server
from warren.settings import Settings
from warren.store.data_dir.file_limits import REAL_FILES, FileLimits

data_dir, entries, journal_limit, store_limit, fault = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
more = json.loads(sys.argv[6])
limits = FileLimits(journal_limit, store_limit, entries) if entries else REAL_FILES
exec(fault)
server.configure_logging(Settings())
print("loaded", flush=True)

def on_ready(report):
    print("ready", re.search(r"listening +[^ ]+:([0-9]+)", report)[1], flush=True)

server.serve(Settings(data_dir=data_dir, port=0, **more), on_ready, limits=limits)
"""

#: Limits of very small files, see TorturedBroker.
SMALL = (256, 1 << 18, 1 << 19)
#: The limits of a real broker.
AS_IT_IS = (0, 0, 0)


class BrokerFailed(Exception):
    """The broker did not start or stop as it should."""


class TorturedBroker:
    """A broker in a process of its own.

    `limits` are the entries of a segment, and the bytes of a journal file and of a message store file. `fault` is
    Python code that the process runs first, to make the broker faulty. `settings` are more settings of the broker.
    """

    def __init__(
        self,
        data_dir: Path,
        log: Path,
        limits: tuple[int, int, int] = AS_IT_IS,
        fault: str = "",
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.log = log
        more = json.dumps(dict(settings))
        self._command = [sys.executable, "-c", _PROGRAM, str(data_dir), *map(str, limits), fault, more]
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""  # what is not yet read as a line; in the buffer of a file object `select` would not see it

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def begin(self) -> None:
        """Start, and return when the process has loaded its code and begins to recover."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, bufsize=0, cwd="/")
        self._output = b""
        self._read("loaded")

    def url(self) -> str:
        """Wait until the broker accepts connections, and return its URL."""
        return f"amqp://guest:guest@127.0.0.1:{self._read('ready')}/%2F"

    def is_ready(self, seconds: float) -> bool:
        """Wait up to `seconds` until the process prints something or ends; return whether it did."""
        return b"\n" in self._output or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def _read(self, wanted: str) -> str:
        """Wait for the line that begins with `wanted`, and return the rest of it."""
        assert self.process.stdout is not None
        while b"\n" not in self._output:
            if not self.is_ready(START_SECONDS):
                raise BrokerFailed(f"the broker was not {wanted} within {START_SECONDS:.0f} s")
            output = os.read(self.process.stdout.fileno(), 4096)
            if not output:
                raise BrokerFailed(f"the broker ended with exit code {self.process.wait()} before it was {wanted}")
            self._output += output
        line, _, self._output = self._output.partition(b"\n")
        assert line.startswith(wanted.encode()), f"{line!r} instead of {wanted}"
        return line.decode().removeprefix(wanted).strip()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = STOP_SECONDS) -> bool:
        """After `terminate`: whether the process ends within `seconds`. BrokerFailed if its exit code is not 0."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._end()
        if code:
            raise BrokerFailed(f"the broker stopped with exit code {code}")
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
