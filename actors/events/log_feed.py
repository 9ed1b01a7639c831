"""`LogFeed`: lines of the log for consumers of `amq.rabbitmq.log` and for commands that follow the log.

A line may come from any thread, and in the middle of any process's turn, where no message can be sent. So the feed only
keeps it, and the hub fetches what has come a few times a second. If more than `LINES_KEPT` lines come in between, the
oldest are dropped.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ...runtime.log_format import LineFormatter
from ...runtime.log_lines import LogLines

#: Lines that wait for the hub at most.
LINES_KEPT = 1_000


class LogLine(NamedTuple):
    """One line of the log; `time` is in seconds since the epoch."""

    level: str
    time: float
    text: str


class LogFeed(LogLines[LogLine]):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(LINES_KEPT)
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(LogLine(record.levelname.lower(), record.created, self.format(record)))

    def taken(self) -> list[LogLine]:
        """The lines that have come since the last call."""
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        return lines
