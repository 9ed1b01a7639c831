"""`FanOutCounts`: how many queues still owe the confirm of each publish that went to several queues.

The publishes of one run go to the same queues, and most queues confirm the run as a whole, so it is counted as one
*stretch* of publish numbers. A run of 100 messages to 20,000 queues takes 20,000 steps, not two million. A stretch is
cut in two where a queue confirms a part of it.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from .range_set import Range

#: Outdated entries at the front of `_starts` that are kept before they are removed together.
GONE_KEPT = 1_000


class FanOutCounts:
    """The stretches of one channel. Each of them is a list of its last number and of how many queues are left."""

    __slots__ = ("_front", "_starts", "stretches")

    def __init__(self) -> None:
        #: By first number. Empty if no number waits for several queues.
        self.stretches: dict[int, list[int]] = {}
        #: The first numbers, sorted. The entry of a stretch that is gone stays until it is at the front: to remove each
        #: of a million entries by itself would move all later ones each time.
        self._starts: list[int] = []
        #: The index in `_starts` before which all entries are outdated.
        self._front = 0

    def __bool__(self) -> bool:
        return bool(self.stretches)

    def add(self, first: int, last: int, queues: int) -> None:
        """`queues` queues owe the confirm of each of these numbers, which are higher than all before."""
        self.stretches[first] = [last, queues]
        self._starts.append(first)

    def count_down(self, first: int, last: int) -> list[Range]:
        """A queue no longer owes these numbers. Return those of them that no queue owes any more.

        The result includes numbers that were never added: their messages went to this one queue.
        """
        stretches, done = self.stretches, []
        while first <= last:
            stretch = stretches.get(first)
            if stretch is None:
                end = self._begin_stretch(first, last)
                if end is not None:
                    done.append((first, end))
                    first = end + 1
                continue
            if stretch[0] > last:
                self._cut(first, last + 1)
            end = stretch[0]
            stretch[1] -= 1
            if not stretch[1]:
                del stretches[first]
                done.append((first, end))
            first = end + 1
        self._move_front()
        return done

    def _begin_stretch(self, first: int, last: int) -> int | None:
        """Cut the stretch that contains `first`, so that one begins there, and return None.

        If no stretch contains `first`, return the last number before the next stretch, at most `last`.
        """
        starts, stretches = self._starts, self.stretches
        at = bisect_right(starts, first, self._front)
        if at > self._front:
            before = starts[at - 1]
            stretch = stretches.get(before)
            if stretch is not None and stretch[0] >= first:
                self._cut(before, first)
                return None
        return last if at == len(starts) else min(last, starts[at] - 1)

    def _cut(self, start: int, at: int) -> None:
        """Have the stretch that begins at `start` end before `at`, and another one begin there."""
        stretch = self.stretches[start]
        self.stretches[at] = stretch[:]
        stretch[0] = at - 1
        insort(self._starts, at, self._front)

    def _move_front(self) -> None:
        starts, stretches, front = self._starts, self.stretches, self._front
        while front < len(starts) and starts[front] not in stretches:
            front += 1
        if front > GONE_KEPT or front == len(starts):
            del starts[:front]
            front = 0
        self._front = front
