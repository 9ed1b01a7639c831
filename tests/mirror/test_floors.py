"""No two masters of a mirrored queue give a message the same number, even if neither knows of the other (CL-94).

A replica that comes back takes messages with equal numbers for the same message. If they were not, the replicas would
differ, and a confirmed message could be lost with the next master.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.frames import build_content
from warren.mirror import instructions
from warren.mirror.backing.mirrored_queue import SKIPPED, UNTOLD_MOST, MirroredQueue
from warren.store.messages.message import Origin
from warren.store.queue.levels.priority_queue import PriorityQueue
from warren.store.queue.memory_queue import MemoryQueue

from .replicas import Group
from .test_learners import arrive


def test_the_successor_of_a_master_whose_publishes_it_has_not_received():
    """A master gives no number again that its predecessor gave to messages which it never received. Here it joined as a
    learner when its predecessor had left out numbers and published nothing yet (seed 50000508).
    """
    group = Group("ab")
    first = group.master
    group.kill(first.member)
    group.remove(first.member)
    for replica in group.living():
        group.apply(replica)
    group.run()
    second = group.master
    learner = group.learn("c")
    arrive(group)
    group.copy_chunk(learner)
    group.copy_chunk(learner)
    group.run()
    group.admit(learner)
    for replica in group.living():
        group.apply(replica)
    group.run()
    group.publish(3)  # no other replica receives these
    given_before = set(second.numbers)
    assert len(given_before) == 3 and not learner.numbers
    group.kill(second.member)
    group.remove(second.member)
    group.apply(learner)
    group.end_turn(learner)
    group.publish(3)
    assert len(learner.numbers) == 3 and not given_before & set(learner.numbers)


def queue() -> MirroredQueue:
    return MirroredQueue(MemoryQueue(), True)


@pytest.mark.parametrize("level", [0, 3])
def test_mirrors_receive_which_numbers_are_given_in_each_level(level):
    """The master has sent a message of priority 3 before. It once took the numbers of that level for those of all, and
    told its mirrors nothing of the numbers that it gave to messages which no replica keeps.
    """
    master = MirroredQueue(PriorityQueue(3, lambda level: MemoryQueue()), True)
    mirror = MirroredQueue(PriorityQueue(3, lambda level: MemoryQueue()), True)
    master.is_followed = True
    master.publish(Origin("", ("q",), True, 3), [CONTENT], 1, None, True)
    origin = Origin("", ("q",), False, level)
    for _ in range(4):
        last = master.discard(origin, UNTOLD_MOST - 1, False).stop
    for kind, content in master.out:
        if kind == instructions.PUBLISH:
            mirror.take(instructions.published(content)[1])
        else:
            mirror.reserve(instructions.number_in(content))
    mirror.reign_is(2)
    mirror.promote()
    assert mirror.discard(origin, 0, False).start > last


ORIGIN = Origin("", ("q",), True)
CONTENT = build_content(1, b"\x10\x00\x02", b"x", 4096)

#: For each master: how many messages each publish has and how many mirrors receive it; after how many reigns the next
#: master begins, which of the remaining mirrors it is, and whether the others apply that row at once.
REIGNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=3),
        st.integers(1, 3),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=12,
)


@given(REIGNS)
def test_masters_that_do_not_know_one_another(reigns):
    ring, reign, given_by = [queue() for _ in range(3)], 1, {}
    for each in ring:
        each.begin(reign, False)
    for number_of_reign, (publishes, later, successor, applies) in enumerate(reigns):
        master, *mirrors = ring
        reached = len(mirrors)
        for count, receivers in publishes:
            numbers = master.inner.publish([ORIGIN] * count, [CONTENT] * count, count, None, False)
            # A mirror receives only what the one before it in the ring has received.
            reached = min(reached, receivers)
            for mirror in mirrors[:reached]:
                mirror.reign_is(reign)  # a frame that was sent under a later row is handled after that row was applied
                mirror.reserve(numbers.stop)
            for number in numbers:
                assert given_by.setdefault(number, number_of_reign) == number_of_reign
        reign += later
        left = mirrors[successor:] or mirrors
        for at, mirror in enumerate(left):
            if at == 0 or applies:
                mirror.reign_is(reign)
        left[0].promote()
        ring = left
        while len(ring) < 3:
            learner = queue()
            learner.begin(reign, False)
            source = ring[-1]
            learner.note_floors(*source.floors())
            learner.reserve(source.next_number(ORIGIN))
            ring.append(learner)


def test_a_replica_from_the_disk_leaves_out_more_than_all_masters_before_it():
    """A replica that starts from its disk leaves out more numbers than all masters before it can have given, since it
    does not know how many masters there were after the last one that it received messages from.
    """
    forgotten, resurrected = queue(), queue()
    forgotten.begin(1, False)
    forgotten.reign_is(5)
    forgotten.promote()
    number = forgotten.next_number(ORIGIN)
    resurrected.begin(6, True)
    assert number == 4 * SKIPPED and resurrected.next_number(ORIGIN) > number
