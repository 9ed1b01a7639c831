"""`StoreClient`, the queue's end of a message store, against a simple model."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.bodies.store_client import NotLoaded, StoreClient


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_write_is_durable_when_it_was_answered():
    client = StoreClient()
    assert client.write([(name(1), b"a"), (name(2), b"b")]) == 1
    assert client.write([(name(3), b"c")]) == 2
    assert client.durable == 0
    client.answered([name(3), name(1)])
    assert client.durable == 0
    client.answered([name(2)])
    assert client.durable == 2


def test_a_remove_before_its_write_was_sent_cancels_both():
    """If a queue removes a message before its write was sent, neither the write nor the removal is sent, and the write
    counts as answered (queue-and-store section 6.10, QS-30).
    """
    client = StoreClient()
    client.write([(name(1), b"a"), (name(2), b"b")])
    client.remove([name(1), name(9)])
    assert client.take() == ([(name(2), b"b")], [name(9)], False, [])
    client.answered([name(2)])
    assert client.durable == 1
    client.write([(name(3), b"c")])
    client.remove([name(3)])
    assert (client.take(), client.durable) == (None, 2)


def test_a_remove_after_its_write_was_sent_is_sent():
    """If a queue removes a message after its write was sent, the removal is sent too, and the store's report `ignored`
    answers the write (QS-30).
    """
    client = StoreClient()
    client.write([(name(1), b"a")])
    client.take()
    client.remove([name(1)])
    assert client.take() == ([], [name(1)], False, [])
    assert client.durable == 0
    client.answered([name(1)])
    assert client.durable == 1


def test_only_what_was_not_sent_can_be_read_here():
    client = StoreClient()
    client.write([(name(1), b"a")])
    assert client.read([name(1)]) == [b"a"]
    client.take()
    with pytest.raises(NotLoaded):
        client.read([name(1)])


def test_answers_for_others_are_nothing():
    """A client skips reports about ids that it did not write: a queue passes each report to both of its clients."""
    client = StoreClient()
    client.write([(name(1), b"a")])
    client.answered([name(7)])
    assert client.durable == 0


class ClientMachine(RuleBasedStateMachine):
    """The store gets exactly the messages that the queue wrote and did not remove.

    A position is durable once all writes up to it are answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.client = StoreClient()
        self.next = 0
        self.wanted: set[bytes] = set()
        self.held: set[bytes] = set()
        self.open: dict[int, set[bytes]] = {}
        self.position = 0

    @rule(count=st.integers(1, 4))
    def write(self, count):
        ids = [name(number) for number in range(self.next, self.next + count)]
        self.next += count
        self.position += 1
        assert self.client.write([(message_id, message_id) for message_id in ids]) == self.position
        self.wanted.update(ids)
        self.open[self.position] = set(ids)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def remove(self, data):
        ids = data.draw(st.sets(st.sampled_from(sorted(self.wanted)), min_size=1, max_size=4))
        self.client.remove(sorted(ids))
        self.wanted -= ids
        for message_id in ids - self.held:
            self.settle(message_id)  # the store never gets it

    @rule()
    def send(self):
        sent = self.client.take()
        if sent is None:
            assert self.held == self.wanted
            return
        for message_id, message in sent.writes:
            assert message == message_id and message_id not in self.held
            self.held.add(message_id)
        for message_id in sent.removes:
            self.held.remove(message_id)
            self.settle(message_id)
        assert self.held == self.wanted
        self.client.answered(sent.removes)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report(self, data):
        ids = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1, max_size=4))
        self.client.answered(sorted(ids))
        for message_id in ids:
            self.settle(message_id)

    def settle(self, message_id):
        for ids in self.open.values():
            ids.discard(message_id)

    @invariant()
    def durable(self):
        assert self.client.durable == next((position - 1 for position, ids in self.open.items() if ids), self.position)


TestClientMachine = ClientMachine.TestCase
