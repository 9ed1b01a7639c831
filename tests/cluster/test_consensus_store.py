"""A node's consensus on a real disk: a node starts again with exactly what a `Ready` wrote."""

from __future__ import annotations

import pytest

from warren.cluster.consensus.core import Raft, RaftRole
from warren.cluster.consensus.log import COMMAND
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.consensus.messages import Append, AppendAnswer, Heartbeat, Snapshot
from warren.cluster.consensus_store import compaction, first_write, found_on_disk, write_of
from warren.store.data_dir.metadata_store import Change, MetadataStore


class Node:
    """A consensus core and its store; each command puts a row with its own name."""

    def __init__(self, path: str, name: str, members: RaftMembers) -> None:
        self.path, self.name = path, name
        store = MetadataStore(path)
        store.apply([], first_write(members))
        self.open(store)

    def open(self, store: MetadataStore) -> None:
        self.store = store
        found = store.load_log()
        assert found is not None
        self.raft = Raft(self.name, *found_on_disk(found), lambda low, high: low)
        self.compacted = None

    def write(self) -> list:
        """Write everything that waits to be written, and return the messages that may be sent after that."""
        answers = []
        while (ready := self.raft.ready()) is not None:
            rows = [] if ready.snapshot is None else list(ready.snapshot.state)
            rows += [entry.data.decode() for entry in ready.committed if entry.kind == COMMAND]
            self.store.apply([Change("queues", (row,), {}) for row in rows], write_of(ready, self.compacted))
            answers += ready.answers
            self.raft.advance()
            self.compacted = None
        return answers

    def rows(self) -> list[str]:
        return sorted(row.key[0] for row in self.store.load()["queues"])

    def kill(self) -> None:
        """End the process; what was not written is lost."""
        self.store.close()
        self.open(MetadataStore(self.path))


@pytest.fixture
def make(tmp_path):
    nodes = []

    def made(name: str, *voters: str) -> Node:
        nodes.append(Node(str(tmp_path / name), name, RaftMembers(voters or (name,))))
        return nodes[-1]

    yield made
    for node in nodes:
        node.store.close()


def test_a_lone_node_writes_entry_and_row_in_one_commit(make, monkeypatch):
    node = make("a")
    node.raft.tick()
    node.write()
    commits = []
    apply = MetadataStore.apply
    monkeypatch.setattr(MetadataStore, "apply", lambda *arguments: (commits.append(arguments), apply(*arguments)))
    for name in ("red", "green", "blue"):
        node.raft.propose(name.encode())
    node.write()
    assert len(commits) == 1
    node.kill()
    assert node.rows() == ["blue", "green", "red"]
    assert node.raft.log.applied == node.raft.log.last_index == 4


def test_what_was_not_written_is_lost(make):
    node = make("a")
    node.raft.tick()
    node.write()
    node.raft.propose(b"red")
    node.raft.ready()
    node.kill()
    assert (node.rows(), node.raft.log.last_index, node.raft.term) == ([], 1, 1)


def test_a_vote_is_remembered(make):
    node = make("a", "a", "b")
    for _ in range(20):
        node.raft.tick()
    (asked,) = node.raft.take_messages()
    node.raft.step(Heartbeat("a", "b", asked.term, 0, 1))
    node.write()
    node.kill()
    assert node.raft.ballot == (1, None)
    assert node.raft.role is RaftRole.FOLLOWER


def test_a_member_answers_for_what_is_on_its_disk(make):
    leader, member = make("a"), make("b", "a", "b")
    leader.raft.tick()
    leader.write()
    leader.raft.propose(b"red")
    leader.write()
    entries = tuple(leader.raft.log.entries)
    member.raft.step(Append("b", "a", 1, 0, 0, entries, 2))
    assert member.write() == [AppendAnswer("a", "b", 1, True, 2)]
    member.kill()
    assert member.rows() == ["red"]
    assert member.raft.log.entries == list(entries)


def test_a_compacted_log_goes_on_after_a_kill(make):
    node = make("a")
    node.raft.tick()
    node.write()
    for number in range(30):
        node.raft.propose(b"q%d" % number)
    node.write()
    node.compacted = compaction(node.raft, 10, 1000)
    node.raft.propose(b"last")
    node.write()
    node.kill()
    assert (node.raft.log.start.index, node.raft.log.last_index, node.raft.log.members) == (21, 32, RaftMembers(("a",)))
    assert len(node.rows()) == 31


def test_a_log_of_large_entries_keeps_few_of_them(make):
    """The bytes of the entries are limited too, and those of entries that are gone do not count (CL-24)."""
    node = make("a")
    node.raft.tick()
    node.write()
    for size in (100, 100, 10, 10, 10):
        node.raft.propose(b"x" * size)
    node.write()
    assert node.raft.log.size == 230
    assert compaction(node.raft, 10, 30) == node.raft.log.start
    assert (node.raft.log.start.index, node.raft.log.size) == (3, 30)
    assert compaction(node.raft, 10, 30) is None
    node.raft.log.restore(node.raft.log.start)
    assert node.raft.log.size == 0


def test_a_snapshot_replaces_rows_and_log(make):
    leader, member = make("a"), make("b", "a", "b")
    leader.raft.tick()
    leader.write()
    for name in ("red", "green"):
        leader.raft.propose(name.encode())
    leader.write()
    leader.compacted = compaction(leader.raft, 0, 1000)
    member.store.apply([Change("queues", ("stale",), {})])
    mark = leader.raft.log.start
    member.raft.step(Snapshot("b", "a", 1, mark, leader.rows()))
    assert member.write() == [AppendAnswer("a", "b", 1, True, 3)]
    member.kill()
    assert member.rows() == ["green", "red"]
    assert (member.raft.log.start, member.raft.log.applied) == (mark, 3)


def test_a_snapshot_that_is_late_takes_no_entries_back(make):
    """A snapshot that arrives late removes no entries for which the member has answered, although it does not know yet
    that they are committed.
    """
    leader, member = make("a"), make("b", "a", "b")
    leader.raft.tick()
    leader.write()
    for name in ("red", "green"):
        leader.raft.propose(name.encode())
    leader.write()
    member.raft.step(Append("b", "a", 1, 0, 0, tuple(leader.raft.log.entries), 0))
    member.write()
    mark = leader.raft.log.start._replace(index=2, term=1)
    member.raft.step(Snapshot("b", "a", 1, mark, ["red"]))
    assert member.write() == [AppendAnswer("a", "b", 1, True, 2)]
    assert member.raft.log.last_index == 3
    assert (member.raft.log.committed, member.rows()) == (2, ["red"])
