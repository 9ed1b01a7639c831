"""`SyncTarget`: how a learner copies the queue of the replica that it follows, while that one goes on (CL-85).

The learner asks for one chunk after the other, in the order of the numbers. A chunk has the messages from the learner's
*cursor* up to the next one, as they are at a position of the stream, and below the cursor the two agree. Meanwhile the
learner gets the stream as well. What has come since the last chunk is kept until the next one says to which position it
belongs:

- Messages that have left by that position are in no chunk: they are removed from what earlier chunks had. Those that
  leave later are removed from all chunks.
- A publish has a higher number than everything before it, so later chunks have it. Only when the cursor has passed all
  numbers of a level, publishes to that level that come behind that chunk's position are taken from the stream.
- The member that the learner copies may change, and the next one may not be as far in the stream. A chunk whose
  position lies before a publish that was left to it cannot have that publish, so the learner asks again.

A learner may *pause*, before the first chunk or later. Then it keeps nothing of the stream: messages that leave are
removed at once from what it has, and everything else is left to later chunks, none of which may be older than that.

So nothing is missed, and no message that has left comes back, whichever of chunk and stream is quicker.
"""

from __future__ import annotations

from ..gm_ring.frames import Instruction
from ..seams import seam
from ..store.queue.levels.levelled_queue import LEVEL_SHIFT, MOST_LEVELS
from . import instructions

#: The cursor behind all messages of all levels.
END = (1 << 64) - 1

#: Instructions and their positions.
Placed = list[tuple[int, Instruction]]


class SyncTarget:
    """See the module. It begins when the stream does."""

    __slots__ = ("_ended", "_kept", "_left_out", "_reached", "cursor", "is_done", "is_paused")

    def __init__(self) -> None:
        self.cursor = 0
        self.is_done = False
        self.is_paused = False
        #: By level whose messages were copied: the position of the chunk that had the last of them.
        self._ended: dict[int, int] = {}
        #: What has come since the last chunk.
        self._kept: Placed = []
        #: Up to which position the stream has come.
        self._reached = 0
        #: The position of the last instruction that later chunks must have behind them.
        self._left_out = 0

    def came(self, first: int, found: list[Instruction]) -> Placed:
        """Instructions of the stream, with positions from `first` on. Returns what is to be followed now."""
        placed = list(enumerate(found, first))
        self._reached = first + len(found) - 1
        if self.is_paused:
            return self._without_keeping(placed)
        if not self.is_done:
            self._kept += placed
            return []
        return self._due(placed)

    def pause(self) -> Placed:
        """Take no more chunks for now. Returns what is to be followed at once."""
        self.is_paused = True
        kept, self._kept = self._kept, []
        return self._without_keeping(kept)

    def resume(self) -> None:
        self.is_paused = False

    def _without_keeping(self, placed: Placed) -> Placed:
        due = self._due(placed)
        if placed:
            self._left_out = placed[-1][0]
        return due

    def chunk(self, position: int, cursor: int) -> tuple[Placed, Placed]:
        """A chunk has come, with the messages below this cursor at this position of the stream. Returns what is to be
        followed before the messages of the chunk are taken, and what afterwards.
        """
        kept, self._kept = self._kept, []
        before = self._due([each for each in kept if each[0] <= position])
        passed = MOST_LEVELS if cursor == END else cursor >> LEVEL_SHIFT
        for level in range(self.cursor >> LEVEL_SHIFT, passed):
            self._ended[level] = position
        self.cursor = cursor
        self.is_done = cursor == END
        return before, self._due([each for each in kept if each[0] > position])

    def begin(self, position: int) -> None:
        """The stream begins behind this position."""
        self._reached = position

    def is_ahead(self, position: int) -> bool:
        """Whether a chunk of this position has to wait for the stream, of which a part was lost and comes once more.

        A purge in that part would remove messages of the chunk which came behind the purge.
        """
        return position > self._reached

    def is_too_early(self, position: int) -> bool:
        """Whether a chunk of this position may lack a publish that was left to it, or have a message that has left
        since. Then it must not be taken.
        """
        return position < self._left_out

    def _due(self, placed: Placed) -> Placed:
        due = []
        for position, each in placed:
            if self._is_due(position, each):
                due.append((position, each))
            else:
                self._left_out = max(self._left_out, position)
        return due

    @seam("replica: which publishes a learner takes from the stream")
    def _is_due(self, position: int, instruction: Instruction) -> bool:
        kind, content = instruction
        if kind != instructions.PUBLISH:
            return True
        ended = self._ended.get(instructions.first_number(content) >> LEVEL_SHIFT)
        return ended is not None and position > ended
