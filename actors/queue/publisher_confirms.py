"""`PublisherConfirms`: the confirms and refusals that a queue sends to the channels that publish to it (AB-111).

A persistent message is confirmed when the backing queue reports it safe on the disk, any other at once; a message over
a length limit is refused. Confirms and refusals are gathered and sent at the end of the queue's turn, one message a
channel.

Two numberings meet here: the backing queue numbers its messages, and each channel numbers its publishes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...runtime.process import Process
from ..channel.contract import to_channel
from .consumers import ChannelRecord

if TYPE_CHECKING:
    from ..channel.contract import ConfirmRange

#: Messages in a row from one publisher: its channel (None: a dead letter or a traced message, which nobody confirms),
#: the publish number of the first (0: the channel awaits no confirm), and how many there are.
Part = tuple[ChannelRecord | None, int, int]

#: First and last number in the queue, id of the channel, the channel's publish number of the first.
_Entry = tuple[int, int, str, int]


class PublisherConfirms:
    """The confirms and refusals of the queue `queue_id`. `channels` are the queue's, by id."""

    __slots__ = ("_channels", "_process", "_queue_id", "awaiting", "confirmed", "refused")

    def __init__(self, process: Process, queue_id: str, channels: Mapping[str, ChannelRecord]) -> None:
        self._process = process
        self._queue_id = queue_id
        self._channels = channels
        self.awaiting = AwaitingConfirms()
        #: Publish numbers to be sent, by channel.
        self.confirmed: dict[str, list[ConfirmRange]] = {}
        self.refused: dict[str, list[ConfirmRange]] = {}

    def add(self, numbers: range, parts: Iterable[Part]) -> None:
        """The backing queue has taken persistent messages under these numbers: confirm them when they are safe."""
        at = 0
        for record, first, count in parts:
            if first and record is not None:
                self.awaiting.add(numbers[at : at + count], record.channel_id, first)
            at += count

    def confirm(self, parts: Iterable[Part]) -> None:
        """Confirm messages that need not be on the disk."""
        for record, first, count in parts:
            if not first or record is None:
                continue
            ranges = self.confirmed.setdefault(record.channel_id, [])
            if ranges and ranges[-1][1] == first - 1:
                ranges[-1] = (ranges[-1][0], first + count - 1)
            else:
                ranges.append((first, first + count - 1))

    def refuse(self, part: Part) -> None:
        """Refuse one message."""
        record, number, _ = part
        if record is not None and number:
            self.refused.setdefault(record.channel_id, []).append((number, number))

    def send(self, safe: Iterable[ConfirmRange]) -> None:
        """Send what was gathered in this turn, with confirms of the messages whose numbers are in the ranges `safe`."""
        if safe:
            for channel_id, ranges in self.awaiting.take(safe).items():
                self.confirmed.setdefault(channel_id, []).extend(ranges)
        if self.confirmed:
            for channel_id, ranges in self.confirmed.items():
                self._process.send(self._channels[channel_id].address, to_channel.confirm(self._queue_id, ranges))
            self.confirmed = {}
        if self.refused:
            for channel_id, ranges in self.refused.items():
                self._process.send(self._channels[channel_id].address, to_channel.refuse(self._queue_id, ranges))
            self.refused = {}

    def forget_channel(self, channel_id: str) -> None:
        self.awaiting.forget_channel(channel_id)
        self.confirmed.pop(channel_id, None)
        self.refused.pop(channel_id, None)


class AwaitingConfirms:
    """Publishes whose confirm waits until their message is safe, as sorted, disjoint ranges of numbers in the queue.

    Numbers arrive almost always in order, so that adding is an append.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, numbers: range, channel_id: str, publish_number: int) -> None:
        entry = (numbers[0], numbers[-1], channel_id, publish_number)
        if self._entries and self._entries[-1][0] > numbers[0]:
            insort(self._entries, entry)  # only a priority queue numbers out of order
        else:
            self._entries.append(entry)

    def take(self, safe: Iterable[ConfirmRange]) -> dict[str, list[ConfirmRange]]:
        """Take out the numbers in the ranges `safe`, and return the publish numbers that they have in each channel.

        Numbers for which no confirm waits are skipped.
        """
        confirmed: dict[str, list[ConfirmRange]] = {}
        entries = self._entries
        for first, last in safe:
            at = bisect_right(entries, (first, 1 << 127))
            if at and entries[at - 1][1] >= first:
                at -= 1
            end, rest = at, []
            while end < len(entries) and entries[end][0] <= last:
                low, high, channel_id, number = entries[end]
                a, b = max(low, first), min(high, last)
                confirmed.setdefault(channel_id, []).append((number + a - low, number + b - low))
                if low < a:
                    rest.append((low, a - 1, channel_id, number))
                if high > b:
                    rest.append((b + 1, high, channel_id, number + b + 1 - low))
                end += 1
            if end > at:
                entries[at:end] = rest
        return confirmed

    def forget_channel(self, channel_id: str) -> None:
        """The channel has ended, so nobody waits for its confirms."""
        if any(entry[2] == channel_id for entry in self._entries):
            self._entries = [entry for entry in self._entries if entry[2] != channel_id]


def split_parts(parts: list[Part], count: int) -> tuple[list[Part], list[Part]]:
    """The parts of the first `count` messages, and those of the rest."""
    head: list[Part] = []
    for at, (record, first, size) in enumerate(parts):
        if size > count:
            head.append((record, first, count))
            return head, [(record, first and first + count, size - count), *parts[at + 1 :]]
        head.append((record, first, size))
        count -= size
        if not count:
            return head, parts[at + 1 :]
    return head, []
