"""A mirror removes what has left the master, and nothing else, however long it waits for its disk meanwhile (CL-62)."""

from __future__ import annotations

from random import Random

import pytest

from warren.mirror.backing.mirrored_stream import mirrored
from warren.store.messages.message import Origin
from warren.store.messages.run import Run
from warren.store.messages.spans import consecutive
from warren.store.queue.levels.level_tags import LEVEL_SHIFT
from warren.store.queue.levels.priority_queue import PriorityQueue
from warren.store.queue.memory_queue import MemoryQueue


class Disk:
    """Whether heads of queues are on the disk, so that they must be read before a message can be taken."""

    def __init__(self):
        self.has_heads = False


class Paged(MemoryQueue):
    """A queue in memory that behaves as if its head were on this disk."""

    def __init__(self, disk):
        super().__init__()
        self.disk = disk

    def available(self, limit):
        return 0 if self.disk.has_heads else super().available(limit)


class PagedMirror:
    """A mirror, and the numbers of the messages that it must have."""

    def __init__(self, levels=0):
        self.disk = Disk()
        inner = PriorityQueue(levels, lambda level: Paged(self.disk)) if levels else Paged(self.disk)
        self.queue = mirrored(inner, True)
        self.wanted = set()
        self.next = {level: level << LEVEL_SHIFT for level in range(levels + 1)}

    def take(self, count, level=0):
        first = self.next[level]
        self.next[level] = first + count
        self.wanted |= set(range(first, first + count))
        self.queue.take(Run(first, [b"x"] * count, Origin("", ("q",), True, level), None, False, count))

    def remove(self, numbers):
        self.wanted -= set(numbers)
        self.queue.remove(consecutive(sorted(numbers)))

    def purge(self, kept):
        self.wanted &= set(kept)
        self.queue.keep_only(consecutive(sorted(kept)))

    def check(self):
        """Read the disk, and compare."""
        self.disk.has_heads = False
        self.queue.remove_more()
        assert not self.queue.is_behind
        self.queue.promote()
        found = [tag for part in self.queue.inner.fetch(1000, True) for tag in part.tags]
        assert set(found) == self.wanted
        in_order = [sorted(tag for tag in found if tag >> LEVEL_SHIFT == level) for level in reversed(self.next)]
        assert found == [tag for level in in_order for tag in level]
        self.queue.inner.requeue(found)


def test_what_is_published_after_a_purge_stays_although_the_purge_waits_for_the_disk():
    mirror = PagedMirror()
    mirror.take(3)
    mirror.disk.has_heads = True
    mirror.purge([1])
    assert mirror.queue.is_behind
    mirror.take(2)
    mirror.check()
    assert mirror.wanted == {1, 3, 4}


def test_of_two_purges_that_wait_for_the_disk_each_keeps_its_own_messages():
    mirror = PagedMirror()
    mirror.take(3)
    mirror.disk.has_heads = True
    mirror.purge([1])
    mirror.take(3)
    mirror.purge([4])
    mirror.take(1)
    mirror.check()
    assert mirror.wanted == {4, 6}


@pytest.mark.parametrize("levels", [0, 3])
def test_a_mirror_that_waits_for_its_disk_has_what_the_master_has(levels):
    """Random instructions, while reads of the disk begin and end at any time."""
    for seed in range(300):
        rng = Random(seed)
        mirror = PagedMirror(levels)
        for _ in range(rng.randint(3, 25)):
            match rng.randrange(6):
                case 0 | 1:
                    mirror.take(rng.randint(1, 4), rng.randint(0, levels))
                case 2 if mirror.wanted:
                    mirror.remove(rng.sample(sorted(mirror.wanted), rng.randint(1, min(4, len(mirror.wanted)))))
                case 3:
                    mirror.purge(rng.sample(sorted(mirror.wanted), rng.randint(0, min(2, len(mirror.wanted)))))
                case 4:
                    mirror.disk.has_heads = not mirror.disk.has_heads
                    mirror.queue.remove_more()
                case _ if rng.random() < 0.3:
                    mirror.check()
        mirror.check()
