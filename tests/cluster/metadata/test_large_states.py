"""Nodes go on with the log while they read a very large state for a digest or a snapshot (CL-24, CL-27).

It takes 7 to 10 µs a row, so with half a million rows it takes longer than a lease lasts. Here each takes as long as a
test likes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.cluster.metadata import digest, snapshots
from warren.cluster.metadata.digest import Digests, Diverged

from .group import Group, V

#: Seconds that reading the state takes.
SECONDS = 10.0


@pytest.fixture
def group():
    with Group() as group:
        yield group


@pytest.fixture
def slow(monkeypatch):
    """Reading a state takes `SECONDS`: before the rows are read, and the state may change in the meantime."""

    def slowed(read):
        async def read_later(process, rows):
            await process.sleep(SECONDS)
            return await read(process, rows)

        return read_later

    monkeypatch.setattr(digest, "digest_of", slowed(digest.digest_of))
    monkeypatch.setattr(snapshots, "pack_snapshot", slowed(snapshots.pack_snapshot))


def declare_some(group, member, first, count):
    """Declare queues one after the other, and return how many virtual seconds that takes."""
    began = group.world.time
    for number in range(first, first + count):
        member.ask(member.declare(f"q{number}"))
    return group.world.time - began


def test_changes_are_answered_while_digests_are_computed(group, slow, monkeypatch):
    """All nodes compute a digest at the same entry. Meanwhile none of them applied anything, so that with a large state
    none had a lease any more.
    """
    monkeypatch.setattr(digest, "EVERY", 10)
    compared, compare = [], Digests.compare

    def note(digests, command):
        compare(digests, command)
        compared.append(digests._taken.get(command.index) == command.digest)

    monkeypatch.setattr(Digests, "compare", note)
    leader = group.wait_for_leader()
    assert declare_some(group, leader, 0, 30) < SECONDS / 2
    group.until(lambda: compared.count(True) >= 6)
    assert group.world.crashes == []
    group.check_equal()


def test_a_digest_that_takes_longer_than_that_of_the_leader_is_compared_later(group, monkeypatch):
    monkeypatch.setattr(digest, "EVERY", 10)
    leader = group.wait_for_leader()
    wrong = next(member for member in group.members if member is not leader)
    read = digest.digest_of

    async def read_later(process, rows):
        if process is wrong.process:
            await process.sleep(SECONDS)
        return await read(process, rows)

    monkeypatch.setattr(digest, "digest_of", read_later)
    leader.ask(leader.declare("q"))
    rows = wrong.process.state.vhosts[V]
    rows.put_queue(replace(rows.queues["q"], auto_delete=True))
    declare_some(group, leader, 0, 15)
    assert group.world.crashes == []
    group.until(lambda: group.world.crashes)
    [(address, error)] = group.world.crashes
    assert address == wrong.metadata.actorAddressString and isinstance(error, Diverged)


def test_changes_are_answered_while_a_snapshot_is_packed(group, slow, monkeypatch):
    """The member gets the state from which the packing began, and goes on with the entries behind it, which the log
    keeps for it. Meanwhile the leader neither wrote nor applied anything.
    """
    monkeypatch.setattr("warren.cluster.metadata.replication.KEPT_ENTRIES", 5)
    monkeypatch.setattr("warren.cluster.metadata.replication.COMPACT_AT", 5)
    leader = group.wait_for_leader()
    late = next(member for member in group.members if member is not leader)
    names = [member.name for member in group.members]
    group.world.partition([late.name], [name for name in names if name != late.name])
    declare_some(group, leader, 0, 30)
    snapshots_of = []
    begin = snapshots.SnapshotSending.begin

    def note(sending, node, mark, rows):
        snapshots_of.append((node, mark.index))
        begin(sending, node, mark, rows)

    monkeypatch.setattr(snapshots.SnapshotSending, "begin", note)
    group.world.mend()
    group.until(lambda: snapshots_of)
    group.world.run(4.0)  # so long a member that lags delays answers (CL-32)
    assert declare_some(group, leader, 30, 15) < SECONDS / 2
    leader.ask(to_metadata.delete_queue(V, "q3", False, False, "c"))
    group.until(lambda: late.queues() == leader.queues())
    assert [node for node, _ in snapshots_of] == [late.name], "another one was needed"
    group.check_equal()
    assert group.world.crashes == []
