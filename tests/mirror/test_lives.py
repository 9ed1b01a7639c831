"""The numbers that a new master leaves out are a gap of a new life, on every replica (SP-25, SP-26)."""

from __future__ import annotations

from warren.amqp.frames import build_content
from warren.mirror.backing.mirrored_queue import SKIPPED
from warren.mirror.backing.mirrored_range_queue import MirroredRangeQueue
from warren.store.messages.lives import Gap, Lives
from warren.store.messages.message import Origin
from warren.store.messages.run import Run
from warren.store.queue.memory_queue import MemoryQueue

ORIGIN = Origin("", ("q",), True)
CONTENT = build_content(1, b"\x10\x00\x02", b"x", 4096)


def published(master, *mirrors):
    """Publish a message to the master, and have the mirrors take it; returns its number."""
    (number,) = master.publish(ORIGIN, [CONTENT], 1, None, False)
    for mirror in mirrors:
        mirror.take(Run(number, [CONTENT], ORIGIN, None, False, 1))
    return number


def test_readers_by_number_know_what_each_new_master_has_left_out():
    """Without the gap a reader would take the numbers that were left out for messages that others have taken."""
    first, second, third = replicas = [MirroredRangeQueue(MemoryQueue(), True) for _ in range(3)]
    for each in replicas:
        each.begin(1, False)
    assert [published(*replicas) for _ in range(3)] == [0, 1, 2]
    first.discard(ORIGIN, 2, False)  # numbers of messages that no mirror gets, which are gone and no gap
    assert published(*replicas) == 5
    assert [each.lives for each in replicas] == [Lives()] * 3

    for each in (second, third):
        each.reign_is(2)
    second.promote()
    after_first = Gap(6, 6 + SKIPPED, 1)
    assert second.numbers().stop == after_first.next and second.lives == Lives(1, (after_first,))
    assert published(second, third) == after_first.next
    second.discard(ORIGIN, 1, False)
    assert published(second, third) == after_first.next + 2
    assert third.lives == second.lives

    third.reign_is(3)
    third.promote()
    start = after_first.next + 3
    assert third.lives == Lives(2, (after_first, Gap(start, start + SKIPPED, 2)))


def test_a_queue_that_begins_again_from_the_disk_of_one_node_begins_a_life():
    queue = MirroredRangeQueue(MemoryQueue(), True)
    queue.begin(3, True)
    assert queue.lives == Lives(1, (Gap(0, 3 * SKIPPED, 1),))
