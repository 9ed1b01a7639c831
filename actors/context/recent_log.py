"""`RecentLog`: the newest lines of the log in bounded memory, for the management page.

A node may write its log to a file, to its standard error or, inside a program, wherever that program sends it. The page
shows it in all three cases, so the node keeps the newest lines itself while it has a management process.
"""

from __future__ import annotations

import itertools
import logging
from typing import NamedTuple

from ...runtime.log_format import ROOT, LineFormatter
from ...runtime.log_lines import LogLines

#: Lines that are kept, and the characters of one line. A longer line is cut.
LINES_KEPT = 1_000
LINE_MAX = 4_000

#: The levels of lines by name, the lowest one first.
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class RecentLine(NamedTuple):
    """One line of the log."""

    #: Counts the lines since the log was opened, so that a reader can tell two equal lines apart.
    number: int
    #: Seconds since the epoch.
    time: float
    level: str
    #: The part of the broker that wrote the line, such as `connection`.
    category: str
    #: In one line, with escapes for control characters, and with the traceback of an error.
    text: str


class RecentLog(LogLines[RecentLine]):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(LINES_KEPT)
        self._format = LineFormatter()
        self._numbers = itertools.count(1)

    def __reduce__(self) -> tuple[type[RecentLog], tuple[()]]:
        """In another process of the operating system, which logs its own lines, the log is empty and not open."""
        return RecentLog, ()

    def emit(self, record: logging.LogRecord) -> None:
        text = self._format.text_of(record)
        if len(text) > LINE_MAX:
            text = text[:LINE_MAX] + "…"
        category = record.name.removeprefix(f"{ROOT}.")
        self._lines.append(RecentLine(next(self._numbers), record.created, record.levelname.lower(), category, text))

    def lines(self, lowest: str, part: str, most: int) -> list[RecentLine]:
        """The newest `most` lines from this level on that contain `part` in any case of letters, the oldest first."""
        level, wanted = LEVELS[lowest], part.casefold()
        found: list[RecentLine] = []
        for line in reversed(self._lines.copy()):
            is_high = LEVELS.get(line.level, logging.CRITICAL) >= level
            if is_high and (wanted in line.text.casefold() or wanted in line.category.casefold()):
                found.append(line)
                if len(found) == most:
                    break
        found.reverse()
        return found
