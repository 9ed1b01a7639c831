"""Runs that are ready for delivery, in order.

A message costs a list slice (5 to 20 ns) as long as whole pieces are taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...seams import seam
from .message import Origins, any_of, slice_of
from .pending_runs import by_first
from .run import Run


class RunQueue:
    """Ready runs, ascending and without overlap. `count` messages with `body_bytes` are in them."""

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self.count = 0
        self.body_bytes = 0

    def append(
        self, first: int, contents: Sequence[bytes], origins: Origins, expiry: int | None, body_bytes: int
    ) -> None:
        """Add messages above all others. The list is copied, because other queues may have been given it too."""
        runs = self.runs
        self.count += len(contents)
        self.body_bytes += body_bytes
        if runs and runs[-1].accepts(first, any_of(origins), expiry, False):
            runs[-1].extend(contents, origins, body_bytes)
        else:
            runs.append(Run(first, list(contents), slice_of(origins, slice(None)), expiry, False, body_bytes))

    def push(self, run: Run) -> None:
        """Add a run above all others, and take over its list."""
        runs = self.runs
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if runs and runs[-1].accepts(run.first, run.origin, run.expiry, run.redelivered, run.kind, run.id_base):
            runs[-1].extend(run.contents, run.origins, run.body_bytes)
        else:
            runs.append(run)

    def take_last(self, count: int) -> list[Run]:
        """Remove up to `count` messages from the tail; returned ascending."""
        taken = []
        runs = self.runs
        while count > 0 and runs:
            run = runs.pop()
            size = len(run.contents)
            if size > count:
                runs.append(run.take(size - count))
                size = count
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            count -= size
        taken.reverse()
        return taken

    def take(self, count: int) -> list[Run]:
        """Remove up to `count` messages from the head."""
        taken = []
        runs = self.runs
        while count > 0 and runs:
            run = runs[0]
            size = len(run.contents)
            if size > count:
                run = run.take(count)
                size = count
            else:
                runs.popleft()
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            count -= size
        return taken

    @seam("where requeued messages go")
    def insert(self, returned: list[Run]) -> None:
        """Put ascending runs where their numbers belong: mostly before all others."""
        runs = self.runs
        for run in returned:
            self.count += len(run.contents)
            self.body_bytes += run.body_bytes
        passed = []
        while runs and runs[0].first < returned[-1].first:
            passed.append(runs.popleft())
        if passed:
            returned = sorted(passed + returned, key=by_first)
        runs.extendleft(reversed(returned))

    def clear(self) -> None:
        """Remove everything."""
        self.runs.clear()
        self.count = self.body_bytes = 0
