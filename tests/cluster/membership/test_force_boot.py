"""What is on a node's disk after an operator has made it the only voter (CL-48)."""

import pytest

from warren.cluster.consensus.core import Raft
from warren.cluster.consensus.log import COMMAND, EMPTY, MEMBERS
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.consensus_store import found_on_disk
from warren.cluster.membership import force_boot as module
from warren.cluster.membership.force_boot import ForceBootError, force_boot, outlook, sole_voter
from warren.cluster.membership.identity import Identity, read_identity, write_identity
from warren.store.data_dir.data_dir import DataDir
from warren.store.data_dir.log_tables import LogStart, LogWrite
from warren.store.data_dir.metadata_store import Change, MetadataStore, MetadataWriteError
from warren.store.disk.real_disk import RealDisk

THREE = RaftMembers(("a", "b", "c"))
ENTRIES = [
    (1, 1, COMMAND, b"applied"),
    (2, 2, COMMAND, b"perhaps committed"),
    (3, 2, MEMBERS, THREE.with_learner("d").packed()),
    (4, 2, COMMAND, b"later"),
]


@pytest.fixture
def directory(tmp_path):
    """The data directory of the member c, which has applied one more command than the log begins with."""
    store = MetadataStore(DataDir(str(tmp_path)).metadata)
    nodes = [Change("nodes", (name,), {"name": name, "node_id": f"{name}-id"}) for name in "abc"]
    queues = [Change("queues", ("/", f"on {node}"), {"node": node}) for node in "bc"]
    start = LogStart(0, 0, THREE.packed())
    store.apply([*nodes, *queues], LogWrite(ballot=(5, "b"), entries=ENTRIES, applied=1, start=start))
    store.close()
    write_identity(RealDisk(str(tmp_path)), Identity("c-id", "the old cluster"))
    return str(tmp_path)


def test_the_outlook_names_who_goes_and_what_is_lost(directory):
    assert outlook(directory) == ("c", ["a", "b"], 1, 4, [("/", "on b")])


def test_the_outlook_counts_a_queue_with_a_replica_in_sync_as_kept(directory):
    """A mirrored queue goes on from a replica of the node that stays, wherever its master was."""
    store = MetadataStore(DataDir(directory).metadata)
    for ring in ("bc", "ab"):
        members = [[node, "1", number] for number, node in enumerate(ring, 1)]
        store.apply([Change("queues", ("/", f"ring {ring}"), {"node": ring[0], "group": {"ring": members}})])
    store.close()
    assert outlook(directory).queues == [("/", "on b"), ("/", "ring ab")]


def test_the_node_leads_alone_and_keeps_all_its_entries(directory):
    force_boot(directory, "c", "the new cluster")
    store = MetadataStore(DataDir(directory).metadata)
    ballot, log = found_on_disk(store.load_log())
    store.close()
    assert (ballot.term, log.members, log.applied) == (6, RaftMembers(("c",)), 1)
    assert [(entry.kind, entry.data) for entry in log.between(2, 4)] == [
        (COMMAND, b"perhaps committed"),
        (EMPTY, b""),
        (COMMAND, b"later"),
    ]
    raft = Raft("c", ballot, log, lambda least, most: least)
    raft.tick()
    committed = []
    while (ready := raft.ready()) is not None:
        committed += [entry.data for entry in ready.committed]
        raft.advance()
    assert raft.leading is not None
    assert committed == [b"perhaps committed", b"", b"later", b""]
    identity = read_identity(RealDisk(directory), b"")
    assert (identity.cluster, identity.is_founder, identity.is_forced) == ("the new cluster", True, True)


def test_forcing_twice_is_forcing_once(directory):
    force_boot(directory, "c", "the new cluster")
    force_boot(directory, "c", "another one")
    store = MetadataStore(DataDir(directory).metadata)
    found = store.load_log()
    store.close()
    assert sole_voter(found, "c").start == found.start


def voters(directory):
    store = MetadataStore(DataDir(directory).metadata)
    _, log = found_on_disk(store.load_log())
    store.close()
    return log.members.voters


def test_a_node_decides_alone_only_under_the_new_id(directory, monkeypatch):
    """If the identity cannot be written, or the program is killed there, the log has all voters as before. A sole voter
    with the old id of the cluster would be linked to the other members if they were not lost after all.
    """

    def refuse(disk, identity):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_identity", refuse)
    with pytest.raises(ForceBootError, match="No space left"):
        force_boot(directory, "c", "the new cluster")
    assert voters(directory) == ("a", "b", "c")


def test_a_node_whose_log_cannot_be_written_is_forced_by_the_next_attempt(directory, monkeypatch):
    def refuse(self, *what):
        raise MetadataWriteError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(MetadataStore, "apply", refuse)
        with pytest.raises(ForceBootError, match="the disk is full. Free space .* repeat the command"):
            force_boot(directory, "c", "the new cluster")
    assert voters(directory) == ("a", "b", "c")
    assert outlook(directory).others == ["a", "b"]
    force_boot(directory, "c", "another one")
    assert voters(directory) == ("c",)
    assert read_identity(RealDisk(directory), b"").cluster == "another one"


def test_a_node_that_is_alone_is_not_forced(tmp_path):
    MetadataStore(DataDir(str(tmp_path)).metadata).close()
    with pytest.raises(ForceBootError, match="is no member of a cluster"):
        outlook(str(tmp_path))
