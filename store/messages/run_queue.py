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
    """Ready runs, ascending and without overlap. They have `count` messages with `body_bytes` bytes of bodies.

    The bodies of `absent` of these messages, `absent_bytes` in all, are not in memory. `persistent` of the messages are
    persistent ones, with `persistent_bytes` bytes of bodies.
    """

    __slots__ = ("absent", "absent_bytes", "body_bytes", "count", "persistent", "persistent_bytes", "runs")

    def __init__(self) -> None:
        self.runs: AscendingRuns[Run] = AscendingRuns()
        self._nothing()

    def _nothing(self) -> None:
        self.count = self.body_bytes = 0
        self.absent = self.absent_bytes = 0
        self.persistent = self.persistent_bytes = 0

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
        origin = any_of(origins)
        self.count += len(contents)
        self.body_bytes += body_bytes
        if origin.persistent:
            self.persistent += len(contents)
            self.persistent_bytes += body_bytes
        if block and block[-1].accepts(first, origin, expiries, redelivered):
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
        # As `_added`, without the call.
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if run.kind & ABSENT:
            self.absent += len(run.contents)
            self.absent_bytes += run.body_bytes
        if run.origin.persistent:
            self.persistent += len(run.contents)
            self.persistent_bytes += run.body_bytes
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
            self._taken(run, size)
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
            # As `_taken`, without the call.
            self.count -= size
            self.body_bytes -= run.body_bytes
            if run.kind & ABSENT:
                self.absent -= size
                self.absent_bytes -= run.body_bytes
            if run.origin.persistent:
                self.persistent -= size
                self.persistent_bytes -= run.body_bytes
            count -= size
        return taken

    def _added(self, run: Run) -> None:
        self.count += len(run.contents)
        self.body_bytes += run.body_bytes
        if run.kind & ABSENT:
            self.absent += len(run.contents)
            self.absent_bytes += run.body_bytes
        if run.origin.persistent:
            self.persistent += len(run.contents)
            self.persistent_bytes += run.body_bytes

    def _taken(self, run: Run, size: int) -> None:
        self.count -= size
        self.body_bytes -= run.body_bytes
        if run.kind & ABSENT:
            self.absent -= size
            self.absent_bytes -= run.body_bytes
        if run.origin.persistent:
            self.persistent -= size
            self.persistent_bytes -= run.body_bytes

    @seam("where requeued messages go")
    def insert(self, returned: list[Run]) -> None:
        """Put ascending runs where their numbers belong: mostly before all others."""
        runs = self.runs
        for run in returned:
            self._added(run)
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
        self._nothing()
        return self.runs.detach()

    def clear(self) -> None:
        """Remove everything."""
        self.runs.clear()
        self._nothing()
