"""What a terminal shows while a broker recovers: a bar for each phase that takes more than a second."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from ..store.disk.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

SHOWN_FROM = 1.0  # s
BETWEEN = 0.1  # s between two looks of the bar
CLEARED = "\r\033[K"


@contextmanager
def recovery_progress(stream: TextIO) -> Iterator[Progress]:
    """A bar on `stream`, where the log goes too, if that is a terminal."""
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


class RecoveryBar(Progress):
    """See the module."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()  # the work is done in other threads than the one that says what is next
        self._vhost = ""
        self._bar: ProgressBar[int] | None = None
        self._shows = False
        self._next_look = 0.0

    def enter(self, vhost: str) -> None:
        self._vhost = vhost

    def begin(self, phase: str, total: int) -> None:
        with self._lock:
            self._end_bar()
            self._bar = click.progressbar(length=total, label=f"vhost '{self._vhost}': {phase}", file=self._stream)
            self._next_look = time.monotonic() + SHOWN_FROM

    def advance(self, size: int) -> None:
        with self._lock:
            if self._bar is None:
                return
            self._bar.make_step(size)
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + BETWEEN
                self._shows = True
                self._render(self._bar)

    def leave(self) -> None:
        with self._lock:
            self._end_bar()

    def make_way(self, _record: logging.LogRecord) -> bool:
        """A filter that lets everything pass: a line of the log takes the place of the bar, which comes again below it."""
        with self._lock:
            if self._shows:
                self._stream.write(CLEARED)
        return True

    def _end_bar(self) -> None:
        if self._bar is not None and self._shows:
            self._render(self._bar)
            self._stream.write("\n")
        self._bar = None
        self._shows = False

    def _render(self, bar: ProgressBar[int]) -> None:
        # Not click's own rendering: that hides the cursor, and a second signal would leave it so.
        self._stream.write(CLEARED + bar.format_progress_line()[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()
