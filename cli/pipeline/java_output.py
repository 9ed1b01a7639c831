"""What Spark's Java writes to standard error: words about itself are kept back, and all others are passed on.

Java inherits standard error when it starts. Before Spark can be told to be quiet, Java and Spark write a dozen lines
about modules, host names and log levels, which mean nothing to somebody who archives a queue. The Python processes that
Java starts write there too, among other things warren's warnings, which must be seen.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Lines of Java and of Spark about themselves.
_ABOUT_ITSELF = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN) |WARNING: |Picked up |Using Spark's default log4j profile"
    r"|Setting default log level|To adjust logging level|Setting Spark log level|\tat |\t\.\.\. "
)
#: What ends a thread of Java. A failure of a job reaches its program as an exception besides, and the end of a query
#: that is stopped while Java compiles it is no failure.
_END_OF_THREAD = re.compile(r"Exception in thread |Caused by: ")
#: Seconds that the last words of a Java that did not start may take.
_LAST_WORDS = 5.0


class JavaOutput:
    """A pipe in the place of standard error for the processes that are started within `inherited`, and a thread that
    reads it until they have ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Lines that are not about Java itself; None as soon as such lines are passed on.
        self._waiting: list[str] | None = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Let processes that are started meanwhile inherit the pipe. Their words are passed on from the end of this
        block on; if it raises, `reason` returns them.
        """
        reading, writing = os.pipe()
        error = os.dup(2)
        os.dup2(writing, 2)
        os.close(writing)
        self._thread = threading.Thread(target=self._read, args=(reading, error), name="java-output", daemon=True)
        self._thread.start()
        try:
            yield
            with self._lock:
                waiting, self._waiting = self._waiting or [], None
                os.write(error, "".join(line for line in waiting if not _END_OF_THREAD.match(line)).encode())
        finally:
            os.dup2(error, 2)

    def _read(self, reading: int, error: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if _ABOUT_ITSELF.match(line):
                    continue
                with self._lock:
                    if self._waiting is not None:
                        self._waiting.append(line)
                    elif not _END_OF_THREAD.match(line):
                        os.write(error, line.encode())
        os.close(error)

    def join(self) -> None:
        """Wait until the processes have ended and their last words are read."""
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)

    def reason(self) -> str:
        """Why Java did not start, in its own words."""
        self.join()
        with self._lock:
            return " ".join(map(str.strip, self._waiting or []))
