"""The numbers that a new master leaves out are a gap of a new life, on every replica (SP-25, SP-26)."""

from __future__ import annotations

from warren.mirror.backing.mirrored_queue import SKIPPED
from warren.mirror.backing.mirrored_range_queue import MirroredRangeQueue
from warren.store.messages.lives import Gap, Lives
from warren.store.messages.message import Origin
from warren.store.queue.memory_queue import MemoryQueue

from .replicas import FakeReplica, Group


class Lived(Group):
    """A group whose replicas know lives."""

    def lives(self) -> list[Lives]:
        """The lives that each replica knows, in the order of the ring."""
        return [self.replicas[member].mirrored.lives for member in self.row.group.everyone]

    def lose_master(self) -> FakeReplica:
        """Kill the master; returns the next one."""
        self.kill(self.master.member)
        self.remove(self.master.member)
        for replica in self.living():
            self.apply(replica)
        self.run()
        return self.master

    def join(self, name: str, earlier: FakeReplica | None = None) -> FakeReplica:
        """Have a replica join the ring."""
        self.master.proposed = None
        learner = self.learn(name, earlier)
        self.run()
        while self.master.proposed is None:
            self.copy_chunk(learner)
            self.run()
        self.admit(learner)
        for replica in self.living():
            self.apply(replica)
        self.run()
        self.check_rest()
        return learner


def test_readers_by_number_know_what_each_new_master_has_left_out():
    """Without the gap a reader would take the numbers that were left out for messages that others have taken."""
    group = Lived("abc")
    group.publish(6)
    group.run()
    group.master.mirrored.discard(Origin("", ("orders",), True), 2, False)  # these messages are gone, and are no gap
    group.publish()
    group.run()
    assert group.lives() == [Lives()] * 3

    second = group.lose_master()
    after_first = Gap(9, 9 + SKIPPED, 1)
    assert second.mirrored.numbers().stop == after_first.next
    assert group.lives() == [Lives(1, (after_first,))] * 2
    group.publish()
    group.run()
    group.lose_master()
    start = after_first.next + 1
    assert group.lives() == [Lives(2, (after_first, Gap(start, start + SKIPPED, 2)))]


def test_a_replica_that_joins_later_knows_what_masters_have_left_out_before():
    """A replica once knew only the gaps that arose since it had joined. When it was the master, a query took the
    numbers of the others for lost messages. What its own copy leaves out is no gap: these messages are gone.
    """
    group = Lived("ab")
    first = group.master
    group.publish(3)
    group.run()
    group.lose_master()
    group.publish(3)
    group.consume(4, "ack")
    (known,) = group.lives()
    assert len(known.gaps) == 1
    new = group.join("c")
    assert group.lives() == [known] * 2
    group.join("a", earlier=first)
    assert group.lives() == [known] * 3

    assert group.lose_master() is new
    after, again = group.lives()
    assert after == again and after.gaps[:1] == known.gaps and after.life == 2


def test_a_queue_that_begins_again_from_the_disk_of_one_node_begins_a_life():
    queue = MirroredRangeQueue(MemoryQueue(), True)
    queue.begin(3, True)
    assert queue.lives == Lives(1, (Gap(0, 3 * SKIPPED, 1),))
