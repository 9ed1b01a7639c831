"""`LogLines`: a handler of the broker's log that keeps its newest lines while it is open."""

from __future__ import annotations

import logging
from collections import deque
from typing import Generic, TypeVar

from .log_format import ROOT

Line = TypeVar("Line")


class LogLines(logging.Handler, Generic[Line]):
    """Keeps `most` lines, in the form that `emit` of a subclass gives them. A line may come from any thread."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=most)
        self.is_open = False

    def open(self, level: int = logging.NOTSET) -> None:
        """Keep lines from this level on, from now on."""
        self.setLevel(level)
        if not self.is_open:
            self.is_open = True
            logging.getLogger(ROOT).addHandler(self)

    def shut(self) -> None:
        """Keep no more lines, and forget those that are kept."""
        if self.is_open:
            self.is_open = False
            logging.getLogger(ROOT).removeHandler(self)
            self._lines.clear()
