"""`LaneLevel`: what a backing queue whose messages are in fair lanes can do besides (`levels/fair_queue`).

To it, all messages that are in lanes are pending, whether a consumer has them or not, because pending messages are the
ones that it finds by number. Only `FairQueue` knows which of them are ready. The other messages, which are ready to
this queue too, are not in lanes yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..messages.message import Expiries, FetchedMessages, Sizes, each_of, expiries_of, slice_of
from ..messages.pending_runs import PendingRuns
from ..messages.run import ABSENT
from .backing_queue import BackingQueue

if TYPE_CHECKING:
    from .variable.read_ahead import ReadAheadJob


class LaneLevel(BackingQueue):
    """See the module. The methods here are those of a queue that has everything in memory."""

    __slots__ = ()

    _pending: PendingRuns

    def begin_lanes(self, unacked: Collection[int]) -> None:
        """Have pending messages be those of lanes; `unacked` has the numbers of unacknowledged ones at any time."""

    def end_lanes(self) -> None:
        """Note that all pending messages are unacknowledged again."""

    @property
    def has_all_in_memory(self) -> bool:
        """Whether the bodies of all messages in lanes are in memory."""
        return True

    def is_readable(self, number: int) -> bool:
        """Whether the message of this number, which is in a lane, is in memory with its body."""
        return True

    def size_of(self, number: int) -> int | None:
        """The size of the body of a message in a lane; None if the message is on the disk only."""
        found = self._pending.slot(number)
        return None if found is None else found[0].size_at(found[1])

    def expiries_of(self, numbers: range) -> Expiries:
        """When these pending messages expire."""
        found: list[int | None] = []
        for run, piece, count in self._pending.pieces(numbers):
            found += each_of(expiries_of(run.expiries, piece), count)
        return found

    def in_a_row(self, numbers: range) -> list[tuple[FetchedMessages, Sizes, Expiries]] | None:
        """The messages of these numbers, which are in lanes, by runs, with the sizes of their bodies and their
        expiries. None if some of them are not in memory.
        """
        found = []
        for run, piece, count in self._pending.pieces(numbers):
            contents = run.contents[piece]
            if run.kind & ABSENT or run.live < len(run.contents) and None in contents:
                return None
            sizes = run.measured()
            tags = range(run.first + piece.start, run.first + piece.start + count)
            delivery = FetchedMessages(slice_of(run.origins, piece), run.redelivered, tags, contents)
            found.append(
                (delivery, sizes if isinstance(sizes, int) else sizes[piece], expiries_of(run.expiries, piece))
            )
        return found

    @property
    def on_disk(self) -> tuple[int, int]:
        """How many messages of lanes are on the disk only, and the bytes of their bodies."""
        return 0, 0

    @property
    def has_backlog_on_disk(self) -> bool:
        """Whether some of the messages that are not in lanes yet are on the disk only."""
        return False

    def prepare_lanes(self, numbers: Sequence[int], needs_bodies: bool) -> ReadAheadJob | None:
        """The job that brings messages into memory, the first of `numbers` first; None if no disk is needed.

        One job at a time. Without `needs_bodies` it reads none from a message store, because these replace those that
        the last job has read.
        """
        return None

    def take_lost_in_lanes(self) -> list[int]:
        """The numbers that a job has not found on the disk since the last call. They are not pending any more."""
        return []

    def keep_in_lanes(self, most: int) -> None:
        """Keep about `most` ready messages of lanes in memory, the oldest, and the others on the disk only."""

    def purge_on_disk(self) -> None:
        """Remove all messages of lanes that are on the disk only."""
