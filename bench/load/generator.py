"""Runs the load generator, `amqpload.c`, in a process of its own, and reads its progress and its result.

The generator is built on first use. It reports the confirmed messages itself, so that sampling does not load the
broker.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .compare import load_generator


class LoadFailed(Exception):
    """The generator ended with an error. The text is its output."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    #: Seconds of CLOCK_MONOTONIC, the clock of `time.monotonic()`.
    at: float
    sent: int
    confirmed: int
    received: int


class LoadGenerator:
    """A running generator, which ends with `result()` or with the `with` block."""

    def __init__(self, address: str, arguments: Sequence[str], progress_seconds: float = 0.0) -> None:
        host, port = address.rsplit(":", 1)
        command = [load_generator(), "--host", host, "--port", port, *arguments]
        if progress_seconds:
            command += ["--progress", str(progress_seconds)]
        self.progress: list[LoadProgress] = []
        self._complaints: list[str] = []
        # A file instead of a pipe, because the result is read only at the end.
        self._result = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(command, stdout=self._result, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end, and return the result that the generator prints. Raises LoadFailed."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._end()
            raise LoadFailed(f"the load generator did not end in {timeout:.0f} s") from None
        self._reader.join()
        if self._process.returncode:
            raise LoadFailed(
                "".join(self._complaints).strip() or f"the load generator ended with {self._process.returncode}"
            )
        self._result.seek(0)
        found: dict[str, Any] = json.load(self._result)
        return found

    def __enter__(self) -> LoadGenerator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._result.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                numbers = line.split()
                if len(numbers) == 4 and all(number.isdigit() for number in numbers):
                    at, sent, confirmed, received = map(int, numbers)
                    self.progress.append(LoadProgress(at / 1e9, sent, confirmed, received))
                else:
                    self._complaints.append(line)
