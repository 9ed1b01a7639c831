"""What Spark's Java writes to standard error: words about itself are kept back, and all others are passed on.

Java inherits standard error when it starts. Before Spark can be told to be quiet, Java and Spark write a dozen lines
about modules, host names and log levels, which mean nothing to somebody who archives a queue. The Python processes that
Java starts write there too, among other things warren's warnings, which must be seen. They also write a traceback if
Java takes no more rows of them, as in a query with a limit, and that one is no error.
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
#: Lines in which Java reports that an exception ended one of its threads. They are dropped once Java runs: if a job has
#: failed, its program gets the exception anyway, and a query that is stopped while Java compiles it ends a thread in
#: this way without any failure.
_END_OF_THREAD = re.compile(r"Exception in thread |Caused by: ")
#: The first line of a traceback of Python, and a whole one of a worker of Spark that cannot pass its rows on. Java has
#: ended its task, because the query has all the rows that it needs, or because another task has failed.
_TRACEBACK = "Traceback (most recent call last):\n"
_UNNEEDED_WORKER = re.compile(
    re.escape(_TRACEBACK)
    + r'( +File "[^"\n]*pyspark.daemon\.py", .*\n( {4,}.*\n)*)+(BrokenPipeError|ConnectionResetError): .*\n'
)
#: Seconds to wait for the rest of the output of a Java that has failed to start.
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
        """Let processes that are started within the block inherit the pipe. Their output is passed on when the block
        has ended; if it raises, `reason` returns that output.
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
            traceback = ""
            for line in lines:
                if line == _TRACEBACK or traceback:
                    traceback += line
                    if line == _TRACEBACK or line.startswith(" "):
                        continue
                    line, traceback = traceback, ""
                self._pass_on(line, error)
            if traceback:
                self._pass_on(traceback, error)
        os.close(error)

    def _pass_on(self, text: str, error: int) -> None:
        """Pass on a line, or the lines of a traceback, unless it is to be dropped."""
        if _ABOUT_ITSELF.match(text) or _UNNEEDED_WORKER.fullmatch(text):
            return
        with self._lock:
            if self._waiting is not None:
                self._waiting.append(text)
            elif not _END_OF_THREAD.match(text):
                os.write(error, text.encode())

    def join(self) -> None:
        """Wait until the processes have ended and their output was read to its end, at most `_LAST_WORDS` seconds."""
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)

    def reason(self) -> str:
        """Why Java did not start, in its own words."""
        self.join()
        with self._lock:
            return " ".join(map(str.strip, self._waiting or []))
