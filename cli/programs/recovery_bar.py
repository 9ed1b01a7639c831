"""The progress bar on a terminal while a broker recovers, for each phase that takes more than a second."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from ...store.disk.progress import NO_PROGRESS, RecoveryProgress

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

#: Seconds before the bar of a phase is shown.
SHOWN_FROM = 1.0
#: Seconds between two updates of the bar.
BETWEEN = 0.1
#: Moves the cursor to the start of the line and clears the line.
CLEARED = "\r\033[K"


@contextmanager
def recovery_progress(stream: TextIO) -> Iterator[RecoveryProgress]:
    """A progress bar on `stream`, which the log is written to as well. Shows nothing if `stream` is not a terminal."""
    if not stream.isatty():
        yield NO_PROGRESS
        return
    bar = RecoveryBar(stream)
    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(bar.make_way)
    try:
        yield bar
    finally:
        for handler in handlers:
            handler.removeFilter(bar.make_way)
        bar.leave()


class RecoveryBar(RecoveryProgress):
    """Shows the progress of one recovery phase at a time.

    Phases are begun in one thread and advanced in others, so a lock guards the bar.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._vhost = ""
        self._bar: ProgressBar[int] | None = None
        self._is_shown = False
        self._next_update = 0.0

    def enter(self, vhost: str) -> None:
        self._vhost = vhost

    def begin(self, phase: str, total: int) -> None:
        with self._lock:
            self._end_bar()
            self._bar = click.progressbar(length=total, label=f"vhost '{self._vhost}': {phase}", file=self._stream)
            self._next_update = time.monotonic() + SHOWN_FROM

    def advance(self, size: int) -> None:
        with self._lock:
            if self._bar is None:
                return
            self._bar.make_step(size)
            if time.monotonic() >= self._next_update:
                self._next_update = time.monotonic() + BETWEEN
                self._is_shown = True
                self._render(self._bar)

    def leave(self) -> None:
        with self._lock:
            self._end_bar()

    def make_way(self, _record: logging.LogRecord) -> bool:
        """A log filter that clears the bar before a log line is written. The next update shows the bar again."""
        with self._lock:
            if self._is_shown:
                self._stream.write(CLEARED)
        return True

    def _end_bar(self) -> None:
        if self._bar is not None and self._is_shown:
            self._render(self._bar)
            self._stream.write("\n")
        self._bar = None
        self._is_shown = False

    def _render(self, bar: ProgressBar[int]) -> None:
        # Click's own rendering would hide the cursor, and a second signal would leave it hidden.
        self._stream.write(CLEARED + bar.format_progress_line()[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()
