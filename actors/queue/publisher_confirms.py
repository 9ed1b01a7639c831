"""`PublisherConfirms`: the confirms and refusals that a queue sends to the channels that publish to it (AB-111).

A publish is confirmed when the backing queue reports the message's number as safe, and never before, whatever becomes
of the message: a backing queue that shares its messages with other replicas may report later than one that is alone.
A message over a length limit is refused. Refusals are gathered, and sent with the confirms at the end of the queue's
turn, one message a channel.

Two numberings meet here: the backing queue numbers its messages, and each channel numbers its publishes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...store.messages.parts import Part, split_parts
from ..contracts.channel import to_channel
from .consumers.consumer import ChannelRecord
from .effects import Effects

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ..contracts.channel import ConfirmRange, ToChannel
    from ..contracts.queue import PublishEntry
    from .master.deduplication import Deduplication

#: Messages that the backing queue has taken under consecutive numbers: the first number, the last, and the parts.
NumberedRun = tuple[int, int, Sequence[Part]]


class PublisherConfirms:
    """The confirms and refusals of the queue `queue_id`. `channels` are its records of channels, by channel id."""

    __slots__ = (
        *("_asked", "_channels", "_effects", "_queue_id", "awaiting", "deduplication", "known", "recent", "refused"),
    )

    def __init__(self, effects: Effects, queue_id: str, channels: Mapping[str, ChannelRecord]) -> None:
        self._effects = effects
        self._queue_id = queue_id
        self._channels = channels
        #: `Intake` appends each run of this turn for which a channel awaits a confirm. At the end of the turn most of
        #: them are safe and are confirmed from here; only the others go to `awaiting`. Putting every run there first
        #: would cost 1 µs more, and a run of one message costs its channel and its queue 16 µs in all.
        self.recent: list[NumberedRun] = []
        self.awaiting = AwaitingConfirms()
        #: Parts of messages of this turn that the backing queue has discarded, and that are refused.
        self.refused: list[Part] = []
        #: Parts of duplicates of this turn whose first message is safe.
        self.known: list[Part] = []
        #: Reports the duplicates whose first message has become safe; None if the queue does not deduplicate. If the
        #: queue ceases to deduplicate, this object stays here until no duplicate waits any more.
        self.deduplication: Deduplication | None = None
        #: The queues that wait until their dead letters are safe here, in the order of the numbers of these.
        self._asked: tuple[DeadLettersAsked, ...] = ()

    @property
    def unconfirmed(self) -> list[NumberedRun]:
        """The runs for which channels await confirms."""
        return [*self.recent, *self.awaiting.runs]

    def collect(self, safe: Sequence[ConfirmRange]) -> None:
        """Send the refusals of this turn, and confirms of the messages whose numbers are in the ranges `safe`."""
        recent, awaiting = self.recent, self.awaiting
        if len(recent) == len(safe) == 1 and not (awaiting.runs or self.refused or self.deduplication is not None):
            first, last, parts = recent[0]
            if len(parts) == 1 and safe[0][0] <= first and last <= safe[0][1]:
                # Usually there is one publisher, and this shorter way takes half of the time.
                recent.clear()
                channel_id, number, count, _ = parts[0]
                record = self._channels.get(channel_id)
                ranges = [(number, number + count - 1)]
                if record is not None:
                    self._effects.endings.append((record.address, to_channel.confirm(self._queue_id, ranges)))
                elif not channel_id:
                    self._answer(ranges)
                return
        confirmed: list[Part] = []
        if recent:
            self.recent = []
            first, last = safe[-1] if safe else (0, -1)
            for run in recent:
                if first <= run[0] and run[1] <= last:
                    confirmed += run[2]
                else:
                    awaiting.add(run)
        if safe and awaiting.runs:
            confirmed += awaiting.take(safe)
        if self.deduplication is not None:
            confirmed += self.known
            self.known = []
            confirmed += self.deduplication.are_safe(safe)
            if self.deduplication.is_over and not self.deduplication.has_waiting:
                self.deduplication = None
        endings, queue_id = self._effects.endings, self._queue_id
        if confirmed:
            for address, ranges in self._by_channel(confirmed):
                endings.append((address, to_channel.confirm(queue_id, ranges)))
        if self.refused:
            refused, self.refused = self.refused, []
            for address, ranges in self._by_channel(refused):
                endings.append((address, to_channel.refuse(queue_id, ranges)))

    def begin(self) -> None:
        """Handle that this replica of a mirrored queue becomes the master: duplicates wait for `settled`."""
        if self.deduplication is not None:
            self.deduplication.begin()

    def settled(self) -> None:
        """Confirm the duplicates that waited until all that this replica took as a mirror is safe on all members of its
        ring.
        """
        if self.deduplication is not None:
            self.known += self.deduplication.settled()

    def refuse_awaited(self, record: ChannelRecord, entries: Sequence[PublishEntry]) -> list[PublishEntry]:
        """Refuse the publishes for which the channel awaits a confirm, because too few replicas are in sync (CL-123).

        Returns the other entries, which the queue takes as usual.
        """
        ranges = [(first, first + len(contents) - 1) for _, contents, _, first, is_awaited, _ in entries if is_awaited]
        if ranges:
            self._effects.endings.append((record.address, to_channel.refuse(self._queue_id, ranges, True)))
        return [entry for entry in entries if not entry[4]]

    def _by_channel(self, parts: Sequence[Part]) -> list[tuple[Address[ToChannel], list[ConfirmRange]]]:
        """The publish numbers in `parts`, for each channel that awaits a confirm for them."""
        numbers: dict[str, list[ConfirmRange]] = {}
        for channel_id, first, count, awaits_confirm in parts:
            if not awaits_confirm:
                continue
            ranges = numbers.get(channel_id)
            if ranges is None:
                numbers[channel_id] = [(first, first + count - 1)]
            elif ranges[-1][1] == first - 1:
                ranges[-1] = (ranges[-1][0], first + count - 1)
            else:
                ranges.append((first, first + count - 1))
        channels = self._channels
        found = []
        for channel_id, ranges in numbers.items():
            record = channels.get(channel_id)
            # A channel that is not here any more has ended, and nobody waits for its confirms.
            if record is not None:
                found.append((record.address, ranges))
            elif not channel_id:
                self._answer(ranges)
        return found

    # -- dead letters of queues that are kept elsewhere

    def await_dead_letters(self, sender: Sender, count: int) -> int:
        """Answer this queue when its dead letters are safe. Returns the number that the first of them is to have; their
        parts have no channel.
        """
        first = 1 if not self._asked else self._asked[-1].last + 1
        self._asked += (DeadLettersAsked(sender, first, first + count - 1, count),)
        return first

    def _answer(self, ranges: Sequence[ConfirmRange]) -> None:
        """Answer the queues all of whose dead letters are safe, or refused."""
        for asked in self._asked:
            for first, last in ranges:
                asked.left -= max(0, min(last, asked.last) + 1 - max(first, asked.first))
            if not asked.left:
                self._effects.answer(asked.sender)
        self._asked = tuple([asked for asked in self._asked if asked.left])


@dataclass(slots=True)
class DeadLettersAsked:
    """The dead letters from `first` to `last`, of which `left` are not safe yet."""

    sender: Sender
    first: int
    last: int
    left: int


class AwaitingConfirms:
    """Publishes whose confirm waits until their message is safe, as sorted, disjoint runs of numbers in the queue.

    A run costs one entry, however many channels published it. Numbers arrive almost always in order, so that adding is
    an append.
    """

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[NumberedRun] = []

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self.runs)

    def add(self, run: NumberedRun) -> None:
        runs = self.runs
        if runs and runs[-1][0] > run[0]:
            insort(runs, run)  # only a priority queue numbers out of order
        else:
            runs.append(run)

    def take(self, safe: Sequence[ConfirmRange]) -> list[Part]:
        """Take out the messages with numbers in the ranges `safe`, and return their parts.

        Numbers for which no confirm waits are skipped.
        """
        confirmed: list[Part] = []
        runs = self.runs
        for first, last in safe:
            at = bisect_right(runs, (first,))
            if at and runs[at - 1][1] >= first:
                at -= 1
            end = at
            rest: list[NumberedRun] = []
            while end < len(runs) and runs[end][0] <= last:
                low, high, parts = runs[end]
                if low < first:
                    before, parts = split_parts(parts, first - low)
                    rest.append((low, first - 1, before))
                    low = first
                if high > last:
                    parts, after = split_parts(parts, last + 1 - low)
                    rest.append((last + 1, high, after))
                confirmed += parts
                end += 1
            if end > at:
                runs[at:end] = rest
        return confirmed
