"""`Publishers`: which publishes a replica has taken, of those that channels may ask for; `Reclaims`: who asks.

When a channel loses the master of a queue, or the connection to it, it does not know what has become of the publishes
that were not answered. The master does: what it has taken is in the queue, and nobody has the rest (CL-95). So every
replica keeps, for each channel, which publishes were taken (CL-65). A channel says with its publishes below which
number it awaits no answer any more, and the master passes that on to the mirrors. A confirm that was sent and lost is
therefore no reason to forget a publish.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..actors.channel.publishing.range_set import Range, RangeSet
from ..seams import seam
from ..store.messages.parts import Part
from .confirming import Confirming

if TYPE_CHECKING:
    from ..runtime.contract import Sender

    Question = tuple[str, list[Range], Sender]

#: Closed ranges of publish numbers.
Ranges = list[Range]

#: More than any publish number: a channel that has ended awaits nothing.
ENDED = (1 << 63) - 1


class Publishers:
    """The publishes that were taken, by channel. At the master `untold` has what the mirrors may forget."""

    __slots__ = ("_taken", "is_complete", "risen", "untold")

    def __init__(self) -> None:
        self._taken: dict[str, RangeSet] = {}
        #: Nothing that may be asked for is missing here. A learner is told by the master what came before it, and what
        #: a disk brings back does not say who has published it.
        self.is_complete = True
        #: Below which number a channel awaits nothing, and by how much these numbers have risen since the last telling.
        self.untold: dict[str, int] = {}
        self.risen = 0

    def __iter__(self) -> Iterator[tuple[str, Ranges]]:
        for channel_id, taken in self._taken.items():
            yield channel_id, list(taken)

    def took(self, parts: Iterable[Part]) -> None:
        """A run with these parts was taken. It may have been noted before."""
        for channel_id, first, count, is_awaited in parts:
            if is_awaited:
                self.add(channel_id, first, first + count - 1)

    def add(self, channel_id: str, first: int, last: int) -> None:
        """These publishes of a channel were taken."""
        taken = self._taken.get(channel_id)
        if taken is None:
            taken = self._taken[channel_id] = RangeSet()
        taken.add(first, last)

    def answered(self, channel_id: str, floor: int) -> None:
        """The channel awaits no answer for publishes below `floor`."""
        taken = self._taken.get(channel_id)
        if taken is None or not taken:
            return
        smallest = taken.smallest
        assert smallest is not None
        if smallest >= floor:
            return
        taken.discard(smallest, floor - 1)
        if not taken:
            del self._taken[channel_id]

    def note_answered(self, channel_id: str, floor: int) -> None:
        """`answered` at the master, which passes it on."""
        taken = self._taken.get(channel_id)
        smallest = None if taken is None else taken.smallest
        if smallest is not None and smallest < floor:
            self.risen += min(floor - smallest, 1 << 16)
            self.untold[channel_id] = floor
            self.answered(channel_id, floor)

    @seam("cluster: which publishes a new master has")
    def of(self, channel_id: str, asked: Sequence[Range]) -> Ranges:
        """The publishes of this channel in the ranges `asked` that were taken."""
        taken = self._taken.get(channel_id)
        return [] if taken is None else [part for first, last in asked for part in taken.within(first, last)]


class Reclaims:
    """The questions of channels to a master, which are answered when what was taken is safe on all members."""

    __slots__ = ("_asked", "_begin", "_is_safe")

    def __init__(self) -> None:
        #: The position of the last instruction that this replica took as a mirror; -1 if it never was one.
        self._begin = -1
        self._is_safe = True
        #: The questions that wait: which channel asks for which publishes, and who is to be answered.
        self._asked: list[Question] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def begin(self, position: int) -> None:
        """This replica is the master, and has taken everything up to this position as a mirror."""
        self._begin = position
        self._is_safe = False

    def is_safe(self, position: int) -> None:
        """Everything up to this position is safe here."""
        self._is_safe = position >= self._begin

    def ask(self, channel_id: str, ranges: list[Range], sender: Sender) -> None:
        self._asked.append((channel_id, ranges, sender))

    def are_mirrored(self, confirming: Confirming) -> bool:
        """Whether what this replica took as a mirror is safe on all members."""
        return self._is_safe and min(confirming.received, confirming.stored) >= self._begin

    def due(self, awaiting: Container[str]) -> list[Question]:
        """Take out the questions of channels that await no confirm of what this replica took as the master."""
        due = [question for question in self._asked if question[0] not in awaiting]
        self._asked = [question for question in self._asked if question[0] in awaiting]
        return due
