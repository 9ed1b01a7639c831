"""`LogFile`: a log file that begins anew when it is full or old, and that an operator may rename at any time.

    broker.log      the lines of now
    broker.log.1    the lines before, then broker.log.2 and so on; the oldest is deleted

A file is *full* when another line would exceed `max_bytes`, and *old* when a new day or hour has begun. If it cannot be
renamed, because the disk or the permissions do not allow it, lines go on into the same file, and the next attempt comes
a minute later. If the file cannot be opened again, because the process is out of descriptors or the directory is gone,
the lines are lost until it can be: whoever logs must not fail because of it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from typing import Literal

Period = Literal["never", "hourly", "daily"]

#: The part of a line's local time that is the same within a period.
_STAMPS: dict[Period, str] = {"never": "", "hourly": "%Y-%m-%d %H", "daily": "%Y-%m-%d"}

#: Seconds until a file that could not be renamed is tried again.
RETRY_SECONDS = 60.0


class LogFile(logging.FileHandler):
    """See the module."""

    def __init__(self, path: str, max_bytes: int | None = None, period: Period = "never", kept: int = 5) -> None:
        """`max_bytes` None is no limit. `kept` is the number of older files, 0 for none. Raises OSError."""
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.max_bytes = max_bytes
        self.period = period
        self.kept = kept
        self._is_moved = False
        #: Whether the file could not be opened when the last line came.
        self._is_lost = False
        self._retry_at = 0.0
        self._begin()

    def reopen(self) -> None:
        """Write the next line to the file of this name, whatever the open one is called by now.

        A signal handler may call this while a line is being written, so it does no more than note it.
        """
        self._is_moved = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_moved:
            self._is_moved = False
            self._close()
        elif record.created >= self._retry_at and self._is_due(record):
            self._rotate(record.created)
        if self.stream is None and not self._opens():
            return
        super().emit(record)

    def _opens(self) -> bool:
        """Open the file, which is closed. False if that fails, which the standard error shows once for each failure
        after a success.
        """
        try:
            self.stream = self._open()
            self._begin()
        except OSError as error:
            self._close()
            if not self._is_lost and sys.stderr is not None:
                print(f"the log {self.baseFilename} cannot be opened: {error.strerror}", file=sys.stderr)
            self._is_lost = True
            return False
        self._is_lost = False
        return True

    def _begin(self) -> None:
        """Note the period of the last line of the file that was opened."""
        assert self.stream is not None
        status = os.fstat(self.stream.fileno())
        self._current = self._stamp(status.st_mtime if status.st_size else time.time())

    def _stamp(self, moment: float) -> str:
        return time.strftime(_STAMPS[self.period], time.localtime(moment))

    def _is_due(self, record: logging.LogRecord) -> bool:
        if self.stream is None:
            return False
        if self._stamp(record.created) != self._current:
            return True
        if self.max_bytes is None:
            return False
        size = self.stream.tell()
        return size > 0 and size + len(self.format(record).encode("utf-8", "replace")) + 1 > self.max_bytes

    def _rotate(self, now: float) -> None:
        self._close()
        try:
            if not self.kept:
                os.unlink(self.baseFilename)
            for number in range(self.kept, 0, -1):
                newer = self.baseFilename if number == 1 else f"{self.baseFilename}.{number - 1}"
                with suppress(FileNotFoundError):
                    os.replace(newer, f"{self.baseFilename}.{number}")
        except FileNotFoundError:
            pass
        except OSError as error:
            self._retry_at = now + RETRY_SECONDS
            if sys.stderr is not None:
                print(f"the log {self.baseFilename} cannot be rotated: {error.strerror}", file=sys.stderr)

    def _close(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            with suppress(OSError):  # a full disk
                stream.close()


def reopen_log_files() -> int:
    """Have the program's log files reopened, which an operator has renamed. Returns their number."""
    count = 0
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile):
            handler.reopen()
            count += 1
        elif isinstance(handler, logging.FileHandler) and handler.baseFilename != os.devnull:
            handler.close()  # the next line opens the file anew, under its name
            count += 1
    return count
