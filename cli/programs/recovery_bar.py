"""The progress bar on a terminal while a broker recovers, for phases that take more than a second."""

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
    """Shows the progress of one recovery phase at a time: of those that are under way, the one that began first.

    Phases are begun in one thread and advanced in others, so a lock guards the bar.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        #: The phases that are under way. Each virtual host has one at most.
        self._phases: dict[VhostProgress, ProgressBar[int]] = {}
        self._is_shown = False
        self._next_update = 0.0

    def enter(self, vhost: str) -> VhostProgress:
        return VhostProgress(self, vhost)

    def start_phase(self, of: VhostProgress, label: str, total: int) -> None:
        with self._lock:
            self._end_phase(of)
            self._phases[of] = click.progressbar(length=total, label=label, file=self._stream)
            if len(self._phases) == 1:
                self._next_update = time.monotonic() + SHOWN_FROM

    def step(self, of: VhostProgress, size: int) -> None:
        with self._lock:
            bar = self._phases.get(of)
            if bar is None:
                return
            bar.make_step(size)
            if of is next(iter(self._phases)) and time.monotonic() >= self._next_update:
                self._next_update = time.monotonic() + BETWEEN
                self._is_shown = True
                self._render(bar)

    def end_phase(self, of: VhostProgress) -> None:
        with self._lock:
            self._end_phase(of)

    def make_way(self, _record: logging.LogRecord) -> bool:
        """A log filter that clears the bar before a log line is written. The next update shows the bar again."""
        with self._lock:
            if self._is_shown:
                self._stream.write(CLEARED)
        return True

    def leave(self) -> None:
        with self._lock:
            for each in [*self._phases]:
                self._end_phase(each)

    def _end_phase(self, of: VhostProgress) -> None:
        is_first = next(iter(self._phases), None) is of
        bar = self._phases.pop(of, None)
        if bar is not None and is_first:
            if self._is_shown:
                self._render(bar)
                self._stream.write("\n")
            self._is_shown = False
            self._next_update = time.monotonic() + SHOWN_FROM

    def _render(self, bar: ProgressBar[int]) -> None:
        # Click's own rendering would hide the cursor, and a second signal would leave it hidden.
        self._stream.write(CLEARED + bar.format_progress_line()[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()


class VhostProgress(RecoveryProgress):
    """The progress of one virtual host, in the bar that all share."""

    def __init__(self, bar: RecoveryBar, vhost: str) -> None:
        self._bar = bar
        self._vhost = vhost

    def begin(self, phase: str, total: int) -> None:
        self._bar.start_phase(self, f"vhost '{self._vhost}': {phase}", total)

    def advance(self, size: int) -> None:
        self._bar.step(self, size)

    def leave(self) -> None:
        self._bar.end_phase(self)
