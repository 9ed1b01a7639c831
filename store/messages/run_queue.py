"""Runs that are ready for delivery, in order.

A message costs a list slice (5 to 20 ns) as long as whole pieces are taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...seams import seam
from .arrivals import UNKNOWN
from .ascending_runs import AscendingRuns
from .message import Expiries, Origins, any_of, expiries_of, slice_of
from .run import ABSENT, Run, insert_joined


class RunQueue:
    """Ready runs, ascending and without overlap. They have `count` messages with `body_bytes` bytes of bodies; the
    bodies of `absent` of these messages are not in memory.
    """

    __slots__ = ("absent", "body_bytes", "count", "runs")

    def __init__(self) -> None:
        self.runs: AscendingRuns[Run] = AscendingRuns()
        self.count = 0
        self.absent = 0
        self.body_bytes = 0

    def append(
        self,
        first: int,
        contents: Sequence[bytes],
        origins: Origins,
        expiries: Expiries,
        body_bytes: int,
        arrived: int = UNKNOWN,
        redelivered: bool = False,
    ) -> None:
        """Add messages above all others. The list is copied, because other queues may have been given it too."""
        block = self.runs.blocks[-1]
        self.count += len(contents)
        self.body_bytes += body_bytes
        if block and block[-1].accepts(first, any_of(origins), expiries, redelivered):
            block[-1].extend(contents, origins, expiries, body_bytes, arrived)
        else:
            if block:
                block[-1].complete()
            whole = slice(None)
            columns = slice_of(origins, whole), expiries_of(expiries, whole)
            self.runs.append(Run(first, list(contents), *columns, redelivered, body_bytes, arrived=arrived))

    def push(self, run: Run) -> None:
        """Add a run above all others, and take over its list."""
        block = self.runs.blocks[-1]
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if run.kind & ABSENT:
            self.absent += len(run.contents)
        if block and block[-1].accepts(run.first, run.origin, run.expiries, run.redelivered, run.kind, run.id_base):
            block[-1].extend(run.contents, run.origins, run.expiries, run.body_bytes, run.arrived)
        else:
            if block:
                block[-1].complete()
            self.runs.append(run)

    def take_last(self, count: int) -> list[Run]:
        """Remove up to `count` messages from the tail; returned ascending."""
        taken = []
        runs = self.runs
        while count > 0 and runs:
            block = runs.blocks[-1]
            run = block.pop()
            size = len(run.contents)
            if size > count:
                block.append(run.take(size - count))
                size = count
            elif not block:
                runs.drop_empty()
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            if run.kind & ABSENT:
                self.absent -= size
            count -= size
        taken.reverse()
        return taken

    def take(self, count: int) -> list[Run]:
        """Remove up to `count` messages from the head."""
        taken = []
        block = self.runs.blocks[0]
        while count > 0 and block:
            run = block[0]
            size = len(run.contents)
            if size > count:
                run = run.take(count)
                size = count
            else:
                del block[0]
                if not block:
                    self.runs.drop_empty()
                    block = self.runs.blocks[0]
            taken.append(run)
            self.count -= size
            self.body_bytes -= run.body_bytes
            if run.kind & ABSENT:
                self.absent -= size
            count -= size
        return taken

    @seam("where requeued messages go")
    def insert(self, returned: list[Run]) -> None:
        """Put ascending runs where their numbers belong: mostly before all others."""
        runs = self.runs
        for run in returned:
            self.count += len(run.contents)
            self.body_bytes += run.body_bytes
            if run.kind & ABSENT:
                self.absent += len(run.contents)
        # Runs above the present head are inserted one by one; the runs below it are put before all others at once.
        below = len(returned)
        if runs:
            head = runs.head.first
            while below and returned[below - 1].first > head:
                below -= 1
                insert_joined(runs, returned[below])
        if below == 1:
            insert_joined(runs, returned[0])
        else:
            runs.extend_head(returned[:below])

    def detach(self) -> AscendingRuns[Run]:
        """Remove everything, and return it to be freed in steps."""
        self.count = self.absent = self.body_bytes = 0
        return self.runs.detach()

    def clear(self) -> None:
        """Remove everything."""
        self.runs.clear()
        self.count = self.absent = self.body_bytes = 0
