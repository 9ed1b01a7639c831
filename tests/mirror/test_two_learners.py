"""Two replicas copy a queue at the same time, and the second goes on with what it has when the first has joined the
ring (CL-84).
"""

from __future__ import annotations

from warren.mirror.sync import sync_source

from .replicas import FakeReplica, Group


class Two:
    """A master with ten messages, and the learners b and c that copy them, one message at a time."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(sync_source, "CHUNK_BYTES", 1)
        self.group = Group("a")
        for _ in range(10):
            self.group.publish()
        self.master = self.group.master
        self.first, self.second = self.group.learn("b"), self.group.learn("c")
        self.group.run()

    def propose(self, learner: FakeReplica) -> None:
        """Have a learner copy the rest, until the master proposes to admit it."""
        self.master.proposed = None
        for _ in range(30):
            if self.master.proposed is None and learner.is_alive:
                self.group.copy_chunk(learner)
                self.group.run()
        assert self.master.proposed is not None and self.master.proposed[1] == learner.member

    def admit(self, learner: FakeReplica) -> None:
        self.group.admit(learner)
        for replica in self.group.living():
            self.group.apply(replica)


def test_the_second_goes_on_with_what_it_has(monkeypatch):
    """The second learner was once ended when the first had joined, and a queue that is not durable copied again."""
    two = Two(monkeypatch)
    for _ in range(4):
        two.group.copy_chunk(two.second)
    assert len(two.second.numbers) == 4
    two.propose(two.first)
    two.admit(two.first)
    asked = []
    for source in (two.master, two.first):
        chunk = source.replication.chunk

        async def noted(first, source=source, chunk=chunk):
            asked.append((source.member.node, first))
            return await chunk(first)

        monkeypatch.setattr(source.replication, "chunk", noted)
    two.group.publish()
    two.propose(two.second)
    two.admit(two.second)
    two.group.run()
    # It had requested the chunk that begins with 4 when it took the one before, of the master.
    assert asked == [("b", number) for number in range(4, 11)]
    two.group.publish()
    two.group.run()
    two.group.check_rest()
    assert two.second.is_alive and len(two.second.numbers) == 12 and two.group.row.group.ring[2] == two.second.member


def test_a_message_that_has_left_does_not_come_back_from_the_other_source(monkeypatch):
    """The next chunk may come from a replica that has received less of the stream, and still has a message that this
    learner knows to have left.
    """
    two = Two(monkeypatch)
    group, master, first, second = two.group, two.master, two.first, two.second
    two.propose(first)
    master.mirrored.fetch(10, True)
    group.ack_pending(slice(4, 5))
    while group.arrive((master.member, second.member)):
        pass
    group.copy_chunk(second)
    assert 4 in first.numbers and sorted(second.numbers) == [0]
    two.admit(first)
    for _ in range(6):  # of `first`, which has not received the removal yet
        group.copy_chunk(second)
    assert sorted(second.numbers) == [0]
    group.run()
    two.propose(second)
    two.admit(second)
    group.run()
    group.check_rest()
    assert sorted(second.numbers) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
