"""`SyncTarget`: how a learner copies the queue of another replica while that queue keeps changing (CL-85).

The learner requests one chunk after the other, in the order of the numbers. A chunk has the messages from the learner's
*cursor* up to the next cursor, as the queue has them at one position of the stream. Below its cursor the learner has
the same messages as that replica. The next chunk may be on its way already when one is taken. Meanwhile the learner
receives the stream as well, and keeps the instructions that follow the last chunk until it has the position of the next
one:

- A message that left the queue up to that position is in no later chunk; the learner removes it if an earlier chunk had
  it. A message that leaves after that position is removed whichever chunk had it.
- A publish has a higher number than all publishes before it, so a later chunk has it. Only when the cursor has passed
  all numbers of a level does the learner take publishes to that level from the stream: those behind the position of the
  chunk that completed the level.
- The learner may change to another replica, which may not have come as far in the stream. A chunk whose position lies
  before a publish that was left to the chunks cannot have that publish, and one whose position lies before that of the
  chunk before it may have a message that has left since. So the learner requests such a chunk again.
- It keeps at most `KEPT_BYTES`. If the next chunk takes so long that more have come, everything that was kept is left
  to the chunks, and the one on its way, which was read before that, is requested again.

A learner may *pause*, before the first chunk or later. While it is paused it keeps no instruction: a message that
leaves is removed at once, and everything else is left to later chunks, whose positions must not lie before that.

So the learner misses no message, and gets none back that has left, whether the chunk or the stream comes first.
"""

from __future__ import annotations

from ...gm_ring.frames import Instruction
from ...seams import seam
from ...store.queue.levels.level_tags import LEVEL_SHIFT, MOST_LEVELS
from .. import instructions

#: The cursor behind all messages of all levels.
END = (1 << 64) - 1

#: Bytes of instructions that wait for the next chunk, at most.
KEPT_BYTES = 16 << 20

#: Instructions and their positions.
Placed = list[tuple[int, Instruction]]


class SyncTarget:
    """See the module. It begins when the stream does."""

    __slots__ = ("_ended", "_kept", "_kept_bytes", "_left_out", "cursor", "is_done", "is_paused", "reached")

    def __init__(self) -> None:
        self.cursor = 0
        self.is_done = False
        self.is_paused = False
        #: By level that was copied completely: the position of the chunk that had its last messages.
        self._ended: dict[int, int] = {}
        #: The instructions that came since the last chunk.
        self._kept: Placed = []
        self._kept_bytes = 0
        #: The position of the last instruction that came.
        self.reached = 0
        #: The position of the last instruction that was left to the chunks, or of the last chunk. No chunk of an
        #: earlier position may be taken.
        self._left_out = 0

    def came(self, first: int, found: list[Instruction]) -> Placed:
        """Take instructions of the stream, with positions from `first` on. Returns those to carry out now."""
        placed = list(enumerate(found, first))
        self.reached = first + len(found) - 1
        if self.is_paused:
            return self._without_keeping(placed)
        if self.is_done:
            return self._due(placed)
        self._keep(placed)
        return self._without_keeping(self._take_kept()) if self._kept_bytes > KEPT_BYTES else []

    def _keep(self, placed: Placed) -> None:
        self._kept += placed
        self._kept_bytes += sum([len(content) for _, (_, content) in placed])

    def _take_kept(self) -> Placed:
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        return kept

    def pause(self) -> Placed:
        """Take no more chunks for now. Returns the instructions to carry out at once."""
        self.is_paused = True
        return self._without_keeping(self._take_kept())

    def resume(self) -> None:
        self.is_paused = False

    def _without_keeping(self, placed: Placed) -> Placed:
        due = self._due(placed)
        if placed:
            self._left_out = placed[-1][0]
        return due

    def chunk(self, position: int, cursor: int) -> tuple[Placed, Placed]:
        """Take a chunk that has the messages below this cursor, as they were at this position of the stream.

        Returns the instructions to carry out before the messages of the chunk are taken, and those for afterwards: the
        latter only for the last chunk, because the next one may be from before they came.
        """
        kept = self._take_kept()
        before = self._due([each for each in kept if each[0] <= position])
        passed = MOST_LEVELS if cursor == END else cursor >> LEVEL_SHIFT
        for level in range(self.cursor >> LEVEL_SHIFT, passed):
            self._ended[level] = position
        self.cursor = cursor
        self.is_done = cursor == END
        after = [each for each in kept if each[0] > position]
        if self.is_done:
            return before, self._due(after)
        self._left_out = max(self._left_out, position)
        self._keep(after)
        return before, []

    def begin(self, position: int) -> None:
        """Note that the stream begins behind this position."""
        self.reached = position

    def is_ahead(self, position: int) -> bool:
        """Whether a chunk of this position has to wait for the stream, a part of which was lost and is sent again.

        If that part has a purge, the learner would remove messages of the chunk that were published after the purge.
        """
        return position > self.reached

    def is_too_early(self, position: int) -> bool:
        """Whether a chunk of this position must not be taken: it may lack a publish that was left to the chunks, or
        have a message that has left the queue since.
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
        run = instructions.run_in(instruction)
        if run is None:
            return True
        ended = self._ended.get(instructions.first_number(run) >> LEVEL_SHIFT)
        return ended is not None and position > ended
