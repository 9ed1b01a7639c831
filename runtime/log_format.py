"""How a line of the log is written: one line for each event, whatever is in its text.

A text may contain what clients sent, and an error has a traceback. Line ends and other control characters are written
as escapes, so that nobody can forge a line, and the lines of a traceback are joined by ` | `.
"""

from __future__ import annotations

import json
import logging
import time

#: The logger above all loggers of the broker. Programs that embed several brokers have one log for all of them.
ROOT = "warren"


def one_line(text: str) -> str:
    """The text with escapes for line ends, control characters and bytes that are not UTF-8."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class LineFormatter(logging.Formatter):
    """`2026-11-22 21:42:07.123 INFO    warren.connection: 127.0.0.1:5 -> 127.0.0.1:5672 opened by 'guest'`."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_stamp(record)} {record.levelname:<7} {record.name}: {self.text_of(record)}"

    def text_of(self, record: logging.LogRecord) -> str:
        """The line without its time, level and category."""
        text = one_line(record.getMessage())
        traceback = _traceback(self, record)
        return f"{text} | {traceback}" if traceback else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the keys `time`, `level`, `domain`, `msg`, `pid`, and `error` for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "domain": record.name,
            "msg": record.getMessage(),
            "pid": record.process,
        }
        traceback = _traceback(self, record)
        if traceback:
            entry["error"] = traceback
        # `dumps` writes ASCII with escapes, because a name on the wire may have bytes that are not UTF-8.
        return json.dumps(entry)


def _stamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03}"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return " | ".join(one_line(line) for line in formatter.formatException(record.exc_info).splitlines())
