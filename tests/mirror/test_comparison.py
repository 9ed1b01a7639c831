"""A replica compares the messages that its disk has from an earlier life with another replica (CL-86)."""

from __future__ import annotations

import pytest

from warren.mirror.sync import comparison as comparison_module
from warren.mirror.sync import learner as learner_module
from warren.mirror.sync import sync_source
from warren.mirror.sync.held import Held

from .replicas import Group


class Returning:
    """A queue with `count` messages whose mirror b has left and comes back as c."""

    def __init__(self, count: int = 10) -> None:
        self.group = Group("ab")
        self.group.publish(count)
        self.group.run()
        self.group.master.mirrored.fetch(count, True)
        self.left = next(each for each in self.group.replicas.values() if each.member.node == "b")
        self.group.kill(self.left.member)
        self.group.remove(self.left.member)
        self.group.apply(self.group.master)

    def come_back(self):
        """Add the learner, let it compare and copy until it has everything or ends, and return it."""
        learner = self.group.learn("c", self.left)
        self.arrive()
        for _ in range(20):
            if learner.is_alive and learner.replication.status()["stage"] != "following":
                self.group.copy_chunk(learner)
                self.arrive()
        return learner

    def arrive(self) -> None:
        while any([self.group.arrive(pair) for pair in list(self.group.wires)]):
            pass

    def ack(self, which: slice) -> None:
        self.group.ack_pending(which)


def held(*spans: range, size: int = 10) -> Held:
    """Messages with these numbers, all of one body size."""
    found = Held()
    for span in spans:
        found.spans.append(span)
        found._sizes.extend([size] * len(span))
    return found


def test_as_many_messages_need_not_be_the_same():
    kept, surplus, missing = held(range(0, 4)).only([range(1, 5)])
    assert (kept.spans, surplus, missing) == ([range(1, 4)], [range(0, 1)], 1)
    kept, surplus, missing = held(range(0, 4), range(6, 8)).only([range(1, 2), range(6, 8)])
    assert (kept.spans, surplus, missing) == ([range(1, 2), range(6, 8)], [range(0, 1), range(2, 4)], 0)
    assert kept.digest() == held(range(3)).digest() != held(range(3), size=11).digest()


def test_it_removes_what_has_left_and_copies_what_has_come(monkeypatch):
    copied = []
    returning = Returning()
    source = returning.group.master.replication
    chunk = source.chunk

    async def noted(first):
        found = await chunk(first)
        copied.extend(found[2])
        return found

    monkeypatch.setattr(source, "chunk", noted)
    returning.ack(slice(2, 5))
    returning.group.publish(2)
    learner = returning.come_back()
    assert learner.numbers == returning.group.master.numbers and sorted(learner.numbers) == [0, 1, *range(5, 12)]
    assert len(copied) == 1, "a run with the two messages"


@pytest.mark.parametrize("at_once", [2, 16])
def test_a_message_that_leaves_while_it_compares_is_removed(monkeypatch, at_once):
    """A message that is acknowledged during the comparison is removed from the learner. The learner requests each part
    before it has compared the one before, so a part may be older than the acknowledgement.
    """
    monkeypatch.setattr(sync_source, "COMPARED_AT_ONCE", at_once)
    returning = Returning()
    learner = returning.group.learn("c", returning.left)
    returning.ack(slice(0, 3))  # the instruction that removes them is in flight
    returning.arrive()
    for _ in range(7):
        returning.group.copy_chunk(learner)
        if len(list(returning.group.master.mirrored.pending_numbers())) > 3:
            returning.ack(slice(0, 1))
        returning.arrive()
    assert learner.replication.status()["stage"] == "following"
    assert learner.numbers == returning.group.master.numbers and len(learner.numbers) == 3


def test_it_begins_anew_if_it_lacks_an_older_message():
    returning = Returning()
    returning.left.backing.fetch(2, True)
    returning.left.backing.ack([0, 1])
    learner = returning.come_back()
    assert not learner.is_alive and learner.unfit == 1


def test_it_begins_anew_if_messages_with_one_number_have_different_sizes():
    returning = Returning()
    (run,) = returning.left.backing._ready.runs
    run.contents[3] = bytes(18) + b"\1"
    assert not returning.come_back().is_alive


def test_it_begins_anew_rather_than_read_all_that_stands_before_what_has_left(monkeypatch):
    monkeypatch.setattr(comparison_module, "PASSED_OVER_MOST", 4)
    returning = Returning()
    returning.ack(slice(4, 5))
    assert returning.come_back().is_alive
    returning = Returning()
    returning.ack(slice(5, 6))
    assert not returning.come_back().is_alive


@pytest.mark.parametrize("is_wanted", [True, False])
def test_with_manual_synchronisation_it_compares_and_waits_before_it_copies(monkeypatch, is_wanted):
    monkeypatch.setattr(learner_module, "policy_of", lambda replica: {"ha-sync-mode": "manual"})
    returning = Returning()
    if is_wanted:
        returning.group.publish(1)
    learner = returning.group.learn("c", returning.left)
    returning.arrive()
    assert learner.replication.status()["stage"] == "comparing"
    for _ in range(3):
        returning.group.copy_chunk(learner)
        returning.arrive()
    assert learner.replication.status()["stage"] == ("waiting" if is_wanted else "following")
    assert len(learner.numbers) == 10
