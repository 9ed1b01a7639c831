"""`LaneNumbers`: the numbers of a lane's ready messages in their order, and when each of them expires.

A lane may have one message or millions, and a queue may have 65,536 lanes, so the numbers are entries of an array: the
first number, the one after the last, and the expiry that these messages share. An entry takes 24 bytes, whether it
stands for one message between those of other lanes or for the whole flood of one client.

Messages enter at the tail and leave at the head. A message that comes back enters at its place, which is mostly the
head. There is room in front of the head for it, so that even a thousand messages that come back to a lane of millions
cost no thousand moves of the array.
"""

from __future__ import annotations

from array import array

#: Items of an entry: first number, number after the last, expiry.
_ITEMS = 3

#: The expiry of messages that never expire.
NEVER = 0

#: Entries for which room is made in front of the head at least.
LEAST_ROOM = 4


class LaneNumbers:
    """See the module. Numbers and expiries are integers of 64 bits; numbers may be negative. `count` is their count."""

    __slots__ = ("_entries", "_head", "count")

    def __init__(self) -> None:
        self._entries = array("q")
        #: The position of the first entry in the array.
        self._head = 0
        self.count = 0

    @property
    def first(self) -> int:
        """The lowest number. There must be one."""
        return self._entries[self._head]

    @property
    def first_expiry(self) -> int:
        """When the message at the head expires; `NEVER` as well if there is none."""
        return self._entries[self._head + 2] if self.count else NEVER

    def __contains__(self, number: int) -> bool:
        at = self._above(number) - _ITEMS
        return at >= self._head and number < self._entries[at + 1]

    def append(self, start: int, stop: int, expiry: int) -> None:
        """Add the numbers from `start` to before `stop`, which are above all others."""
        entries = self._entries
        if self.count and entries[-2] == start and entries[-1] == expiry:
            entries[-2] = stop
        else:
            entries.extend((start, stop, expiry))
        self.count += stop - start

    def ahead(self, count: int) -> list[range]:
        """The first `count` numbers, or all if there are fewer."""
        entries, at = self._entries, self._head
        found = []
        while count > 0 and at < len(entries):
            start = entries[at]
            stop = min(entries[at + 1], start + count)
            found.append(range(start, stop))
            count -= stop - start
            at += _ITEMS
        return found

    def expired(self, now: int, most: int) -> int:
        """How many messages at the head, up to `most`, expire no later than `now`."""
        entries, at = self._entries, self._head
        found = 0
        while found < most and at < len(entries) and NEVER < entries[at + 2] <= now:
            found += entries[at + 1] - entries[at]
            at += _ITEMS
        return min(found, most)

    def take(self, count: int) -> list[range]:
        """Remove the first `count` numbers, or all if there are fewer, and return them."""
        entries, at = self._entries, self._head
        found = []
        while count > 0 and at < len(entries):
            start, stop = entries[at], entries[at + 1]
            if stop - start > count:
                stop = start + count
                entries[at] = stop
            else:
                at += _ITEMS
            found.append(range(start, stop))
            count -= stop - start
            self.count -= stop - start
        if at == len(entries):
            del entries[:]
            at = 0
        elif at > len(entries) // 2 and at > LEAST_ROOM * _ITEMS:
            # A part of the room stays for messages that come back.
            room = at // 4 // _ITEMS * _ITEMS
            del entries[: at - room]
            at = room
        self._head = at
        return found

    def put_back(self, number: int, expiry: int) -> None:
        """Add a number at its place."""
        if not self.count:
            self.append(number, number + 1, expiry)
            return
        entries = self._entries
        at = self._above(number)
        joins_below = at > self._head and entries[at - 2] == number and entries[at - 1] == expiry
        joins_above = at < len(entries) and entries[at] == number + 1 and entries[at + 2] == expiry
        self.count += 1
        if joins_below and joins_above:
            entries[at - 2] = entries[at + 1]
            self._close(at)
        elif joins_below:
            entries[at - 2] = number + 1
        elif joins_above:
            entries[at] = number
        else:
            self._insert(at, number, number + 1, expiry)

    def remove(self, number: int) -> None:
        """Remove a number that is there."""
        entries = self._entries
        at = self._above(number) - _ITEMS
        start, stop, expiry = entries[at : at + _ITEMS]
        assert start <= number < stop
        self.count -= 1
        if stop - start == 1:
            self._close(at)
        elif number == start:
            entries[at] = number + 1
        else:
            entries[at + 1] = number
            if number + 1 < stop:
                self._insert(at + _ITEMS, number + 1, stop, expiry)

    def _above(self, number: int) -> int:
        """The position of the first entry that begins above `number`."""
        entries, head = self._entries, self._head
        low, high = 0, (len(entries) - head) // _ITEMS
        while low < high:
            middle = (low + high) // 2
            if entries[head + middle * _ITEMS] > number:
                high = middle
            else:
                low = middle + 1
        return head + low * _ITEMS

    def _insert(self, at: int, start: int, stop: int, expiry: int) -> None:
        """Insert an entry at this position, by moving the shorter side."""
        entries = self._entries
        entry = array("q", (start, stop, expiry))
        if at - self._head > len(entries) - at:
            entries[at:at] = entry
            return
        if not self._head:
            room = max(LEAST_ROOM, len(entries) // _ITEMS // 4) * _ITEMS
            entries[0:0] = array("q", bytes(8 * room))
            self._head = room
            at += room
        head = self._head = self._head - _ITEMS
        entries[head : at - _ITEMS] = entries[head + _ITEMS : at]
        entries[at - _ITEMS : at] = entry

    def _close(self, at: int) -> None:
        """Remove the entry at this position, by moving the shorter side."""
        entries, head = self._entries, self._head
        if at - head > len(entries) - at:
            del entries[at : at + _ITEMS]
        else:
            entries[head + _ITEMS : at + _ITEMS] = entries[head:at]
            self._head += _ITEMS
        if self._head == len(entries):
            del entries[:]
            self._head = 0
