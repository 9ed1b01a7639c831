"""`Publishers`: which publishes of each channel a replica has taken; `Reclaims`: the channels that ask about them.

When a channel loses the master of a queue, or the connection to it, it cannot tell whether its unanswered publishes
reached the queue. The new master can: the queue has the publishes that it has taken, and no replica has the others
(CL-95). So every replica records, for each channel, which publishes were taken (CL-65). A channel sends with its
publishes the number below which it awaits no answer any more, and the master passes that number on to the mirrors; only
then do they forget a publish, so a confirm that was sent and lost does no harm.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..actors.channel.publishing.range_set import Range, RangeSet
from ..routing.phrases import no_queue
from ..seams import seam
from ..store.messages.parts import Part
from .confirming import Confirming

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from ..runtime.contract import Sender

    Question = tuple[str, list[Range], Sender]

#: Closed ranges of publish numbers.
Ranges = list[Range]

#: Every empty set takes 216 bytes, so idle queues share this one.
_NO_CHANNELS: frozenset[str] = frozenset()

#: More than any publish number: a channel that has ended awaits nothing.
ENDED = (1 << 63) - 1


class Publishers:
    """The publishes that this replica has taken, by channel. A master also collects in `untold` what it has forgotten,
    so that it can tell its mirrors to forget the same.
    """

    __slots__ = ("_taken", "_unknown", "is_complete", "risen", "untold")

    def __init__(self) -> None:
        self._taken: dict[str, RangeSet] = {}
        #: The channels of which the master had no record when `end_unknown` was called last.
        self._unknown = _NO_CHANNELS
        #: Whether every publish that a channel may ask for is known here. It is False for a learner until the master
        #: has sent it the earlier publishes, and for a replica that recovered from its disk, which has no publishers.
        self.is_complete = True
        #: By channel, the number below which it awaits no answer, and by how much these numbers have risen in all since
        #: the master last sent them to the mirrors.
        self.untold: dict[str, int] = {}
        self.risen = 0

    def __iter__(self) -> Iterator[tuple[str, Ranges]]:
        for channel_id, taken in self._taken.items():
            yield channel_id, list(taken)

    def took(self, parts: Iterable[Part]) -> None:
        """Note that a run with these parts was taken. It may have been noted before."""
        for channel_id, first, count, is_awaited in parts:
            if is_awaited and channel_id:
                self.add(channel_id, first, first + count - 1)

    def add(self, channel_id: str, first: int, last: int) -> None:
        """Note that these publishes of a channel were taken."""
        taken = self._taken.get(channel_id)
        if taken is None:
            taken = self._taken[channel_id] = RangeSet()
        taken.add(first, last)

    def answered(self, channel_id: str, floor: int) -> None:
        """Forget publishes below `floor`, for which the channel awaits no answer."""
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
        """`answered` at the master, which sends it to the mirrors later (`untold`)."""
        taken = self._taken.get(channel_id)
        smallest = None if taken is None else taken.smallest
        if smallest is not None and smallest < floor:
            self.risen += min(floor - smallest, 1 << 16)
            self.untold[channel_id] = floor
            self.answered(channel_id, floor)

    def ended(self, channel_id: str) -> None:
        """`note_answered` for a channel that has ended."""
        self.note_answered(channel_id, ENDED)

    def lost(self, channel_id: str) -> None:
        """Note that the connection to the node of a channel has been lost: `end_unknown` leaves it out once."""
        self._unknown -= {channel_id}

    def end_unknown(self, known: Container[str]) -> bool:
        """`ended` for every channel that is not in `known`, and was not when this was called before. Returns whether
        there are others that are not in `known`.
        """
        unknown = [channel_id for channel_id in self._taken if channel_id not in known]
        before, self._unknown = self._unknown, frozenset(unknown) - self._unknown
        for channel_id in unknown:
            if channel_id in before:
                self.ended(channel_id)
        return bool(self._unknown)

    @seam("cluster: which publishes a new master has")
    def of(self, channel_id: str, asked: Sequence[Range]) -> Ranges:
        """The publishes of this channel in the ranges `asked` that were taken."""
        taken = self._taken.get(channel_id)
        return [] if taken is None else [part for first, last in asked for part in taken.within(first, last)]


class Reclaims:
    """The questions of channels to a new master. It answers them when all publishes that it took as a mirror are safe
    on all members.
    """

    __slots__ = ("_asked", "_begin", "_is_safe")

    def __init__(self) -> None:
        #: The position of the last instruction that this replica took as a mirror; -1 if it never was one.
        self._begin = -1
        self._is_safe = True
        #: The waiting questions: the channel, the ranges of its publishes, and the process to answer.
        self._asked: list[Question] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def begin(self, position: int) -> None:
        """Note that this replica is the master, and has taken all instructions up to this position as a mirror."""
        self._begin = position
        self._is_safe = False

    def is_safe(self, position: int) -> None:
        """Note that all instructions up to this position are safe here."""
        self._is_safe = position >= self._begin

    def ask(self, channel_id: str, ranges: list[Range], sender: Sender) -> None:
        self._asked.append((channel_id, ranges, sender))

    def await_members(self, confirming: Confirming) -> bool:
        """Whether another member lacks, or has not stored, a publish that this replica took as a mirror."""
        return min(confirming.received, confirming.stored) < self._begin

    def are_mirrored(self, confirming: Confirming) -> bool:
        """Whether all publishes that this replica took as a mirror are safe on all members."""
        return self._is_safe and not self.await_members(confirming)

    def refuse(self, replica: Replica) -> None:
        """Answer all questions with AmqpError 404: it cannot be found out any more which publishes are safe."""
        asked, self._asked = self._asked, []
        for _, _, sender in asked:
            replica.reply_error(sender, no_queue(replica.row.vhost, replica.row.name))

    def answer(self, replica: Replica, publishers: Publishers, awaiting: Container[str]) -> None:
        """Answer the questions of channels that are not in `awaiting`, the channels that await confirms here."""
        due = [question for question in self._asked if question[0] not in awaiting]
        self._asked = [question for question in self._asked if question[0] in awaiting]
        for channel_id, ranges, sender in due:
            if publishers.is_complete:
                replica.reply(sender, publishers.of(channel_id, ranges))
            else:
                replica.reply_error(sender, no_queue(replica.row.vhost, replica.row.name))
