"""`PublisherConfirms`: the confirms and refusals that a queue sends to the channels that publish to it (AB-111).

A publish is confirmed when the backing queue reports the message's number as safe, and never before, whatever becomes
of the message: a backing queue that shares its messages with other replicas may report later than one that is alone.
A message over a length limit is refused. Refusals are gathered, and sent with the confirms at the end of the queue's
turn, one message a channel.

Two numberings meet here: the backing queue numbers its messages, and each channel numbers its publishes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...store.messages.parts import Part, split_parts
from ..channel.contract import to_channel
from .consumers import ChannelRecord
from .effects import Effects

if TYPE_CHECKING:
    from ..channel.contract import ConfirmRange


class PublisherConfirms:
    """The confirms and refusals of the queue `queue_id`. `channels` are the queue's, by id."""

    __slots__ = ("_channels", "_effects", "_queue_id", "awaiting", "refused")

    def __init__(self, effects: Effects, queue_id: str, channels: Mapping[str, ChannelRecord]) -> None:
        self._effects = effects
        self._queue_id = queue_id
        self._channels = channels
        self.awaiting = AwaitingConfirms()
        #: Publish numbers to be sent, by channel.
        self.refused: dict[str, list[ConfirmRange]] = {}

    def refuse(self, parts: Iterable[Part]) -> None:
        """Refuse messages that the backing queue has discarded."""
        _add_publish_numbers(self.refused, parts)

    def collect(self, safe: Sequence[ConfirmRange]) -> None:
        """Send the refusals of this turn, and confirms of the messages whose numbers are in the ranges `safe`."""
        if safe:
            for channel_id, ranges in self.awaiting.take(safe).items():
                channel = self._channels.get(channel_id)
                if channel is not None:  # else the channel has ended, and nobody waits for these confirms
                    self._effects.send_after_deliveries(channel.address, to_channel.confirm(self._queue_id, ranges))
        if self.refused:
            refused, self.refused = self.refused, {}
            for channel_id, ranges in refused.items():
                channel = self._channels.get(channel_id)
                if channel is not None:
                    self._effects.send_after_deliveries(channel.address, to_channel.refuse(self._queue_id, ranges))


class AwaitingConfirms:
    """Publishes whose confirm waits until their message is safe, as sorted, disjoint runs of numbers in the queue.

    A run costs one entry, however many channels published it. Numbers arrive almost always in order, so that adding is
    an append.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        #: First and last number in the queue, and the parts of these messages.
        self._entries: list[tuple[int, int, Sequence[Part]]] = []

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self._entries)

    def add(self, numbers: range, parts: Sequence[Part]) -> None:
        """The backing queue has taken messages with these parts under these numbers."""
        entries = self._entries
        entry = (numbers.start, numbers.stop - 1, parts)
        if entries and entries[-1][0] > numbers.start:
            insort(entries, entry)  # only a priority queue numbers out of order
        else:
            entries.append(entry)

    def take(self, safe: Sequence[ConfirmRange]) -> dict[str, list[ConfirmRange]]:
        """Take out the numbers in the ranges `safe`, and return the publish numbers that they have in each channel.

        Numbers for which no confirm waits are skipped.
        """
        confirmed: dict[str, list[ConfirmRange]] = {}
        entries = self._entries
        if entries and len(safe) == 1 and safe[0][0] <= entries[0][0] and entries[-1][1] <= safe[0][1]:
            # Everything that waits is safe, as it is at each turn of a queue that nothing holds back.
            self._entries = []
            for _, _, parts in entries:
                _add_publish_numbers(confirmed, parts)
            return confirmed
        for first, last in safe:
            at = bisect_right(entries, (first,))
            if at and entries[at - 1][1] >= first:
                at -= 1
            end = at
            rest: list[tuple[int, int, Sequence[Part]]] = []
            while end < len(entries) and entries[end][0] <= last:
                low, high, parts = entries[end]
                if low < first:
                    before, parts = split_parts(parts, first - low)
                    rest.append((low, first - 1, before))
                    low = first
                if high > last:
                    parts, after = split_parts(parts, last + 1 - low)
                    rest.append((last + 1, high, after))
                _add_publish_numbers(confirmed, parts)
                end += 1
            if end > at:
                entries[at:end] = rest
        return confirmed


def _add_publish_numbers(numbers: dict[str, list[ConfirmRange]], parts: Iterable[Part]) -> None:
    """Add the publish numbers of the parts for which a channel awaits a confirm, by channel."""
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
