"""`Comparison`: how a learner keeps the messages that its disk has from an earlier life (CL-86).

The replica was the master before its queue moved, was evicted, or its node was away. It compares what it has with its
left neighbour, part by part in the order of the numbers, as it would copy the queue (`sync_target`). It removes what
the neighbour does not have any more. Then it copies what was published since.

A number that a queue has had once cannot be given to a message again: its journal may have a record that the message
with this number has left. So a replica that lacks a message below the number at which its own numbering stands, or
would have to read through much of its queue to remove another one, is *unfit*, and begins anew without messages.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...store.queue.levels.level_tags import LEVEL_SHIFT, NUMBER_MASK
from ...store.queue.range_read import SupportsRangeRead
from .held import Held, read_window
from .sync_source import level_from, numbers_of
from .sync_target import END

if TYPE_CHECKING:
    from ...actors.queue.disk.disk_loader import DiskLoader
    from ...store.queue.backing_queue import BackingQueue

log = logging.getLogger("warren.mirror")

#: A replica begins anew if more messages than this stand before one that is to be removed: they would be read from the
#: disk and stay in memory.
PASSED_OVER_MOST = 65_536


class Unfit(Exception):
    """What this replica has cannot be made equal to what the other one has."""


class Comparison:
    """Belongs to a learner. `backing` is the queue that has the messages, without the `MirroredQueue` around it."""

    def __init__(self, backing: BackingQueue, loader: DiskLoader | None) -> None:
        self._backing = backing
        self._loader = loader
        #: By level, where the numbering of the earlier life stands, if it gave any number in this level.
        self.ends = {level: following for level, _, following in numbers_of(backing) if following}
        #: How many messages are the same, and how many were removed, so far.
        self.kept = self.removed = 0

    def limit(self, cursor: int) -> int | None:
        """The number up to which the level of the cursor is compared; None if the cursor is behind it."""
        end = self.ends.get(cursor >> LEVEL_SHIFT, 0) if cursor != END else 0
        return end if cursor & NUMBER_MASK < end else None

    async def surplus(self, first: int, cursor: int, following: int, wanted: list[range], digest: bytes) -> list[range]:
        """What to remove of the messages from `first` on to the cursor, so that the `wanted` ones are left.

        Raises Unfit if these are not all here, or not the same.
        """
        level = first >> LEVEL_SHIFT
        end = self.ends[level]
        passed = [number for number in self.ends if level < number < cursor >> LEVEL_SHIFT]
        if not following or passed:
            # A new master passes over the numbers that the old one may have given, but only in levels that it has.
            raise Unfit("the queue has no messages of a priority that this replica has")
        stop = min(end, cursor & NUMBER_MASK) if cursor >> LEVEL_SHIFT == level else end
        held = await self._held(first, stop)
        kept, surplus, missing = held.only(wanted)
        if missing:
            raise Unfit(f"it lacks {missing} of its older messages")
        if kept.digest() != digest:
            raise Unfit("messages with the same numbers differ: its disk may be damaged")
        before = self.kept
        self.kept += len(kept)
        if surplus and before + sum([len(span) for span in kept.spans if span.start < surplus[-1].start]) > (
            PASSED_OVER_MOST
        ):
            raise Unfit("messages that have left the queue stand behind too many others")
        self.removed += sum(map(len, surplus))
        return surplus

    async def _held(self, first: int, stop: int) -> Held:
        """The messages from the number `first` to before `stop` of the same level."""
        base = first & ~NUMBER_MASK
        found = level_from(self._backing, first >> LEVEL_SHIFT)
        assert found is not None and isinstance(found[1], SupportsRangeRead)
        level, held, at = found[1], Held(), first & NUMBER_MASK
        while at < stop:
            batch = await read_window(level, self._loader, at, stop)
            held.add(batch.runs, base)
            at = batch.next_number
        return held
