"""The log of consensus in the metadata store: what is written with it, what it replaces, and what a kill leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import lmdb
import pytest

from warren.store.data_dir.log_tables import LogFound, LogStart, LogWrite
from warren.store.data_dir.metadata_store import TABLES, Change, MetadataError, MetadataStore, Row

BEGIN = LogWrite(ballot=(0, None), applied=0, start=LogStart(0, 0, b"members"))


def entry(index: int, term: int = 1) -> tuple[int, int, int, bytes]:
    return index, term, 1, b"e%d" % index


def row(index: int) -> Change:
    return Change("queues", ("/", f"q{index}"), {"index": index})


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "metadata")


@pytest.fixture
def store(path):
    store = MetadataStore(path)
    yield store
    store.close()


def reopened(store: MetadataStore, path: str) -> LogFound:
    store.close()
    again = MetadataStore(path)
    found = again.load_log()
    again.close()
    assert found is not None
    return found


def test_a_node_without_a_cluster_has_no_log(store, path):
    """A node without a cluster has no log in its metadata, which keep format 1, so that an older warren can
    read them.
    """
    store.apply([row(1)])
    assert store.load_log() is None
    store.close()
    with lmdb.open(path, max_dbs=64) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin() as transaction:
            assert transaction.get(b"format", db=meta) == bytes([0, 0, 0, 1])
            assert environment.stat()["entries"] == 1 + len(TABLES)


def test_what_was_written_is_there_again(store, path):
    store.apply([], BEGIN)
    store.apply([row(1)], LogWrite(ballot=(3, "a"), entries=[entry(1), entry(2, 3)], applied=1))
    assert reopened(store, path) == LogFound((3, "a"), BEGIN.start, [entry(1), entry(2, 3)], 1)


def test_entries_replace_all_from_the_first_on(store, path):
    store.apply([], BEGIN)
    store.apply([], LogWrite(entries=[entry(index) for index in range(1, 600)]))
    store.apply([], LogWrite(entries=[entry(300, 2), entry(301, 2)]))
    found = reopened(store, path)
    assert found.entries == [*(entry(index) for index in range(1, 300)), entry(300, 2), entry(301, 2)]


def test_a_compacted_log_begins_behind_its_start(store, path):
    store.apply([], BEGIN)
    store.apply([], LogWrite(entries=[entry(index) for index in range(1, 301)], applied=300))
    start = LogStart(257, 1, b"others")
    store.apply([], LogWrite(start=start))
    assert reopened(store, path) == LogFound((0, None), start, [entry(index) for index in range(258, 301)], 300)


def test_a_snapshot_replaces_the_log_and_all_rows(store, path):
    store.apply([], BEGIN)
    store.apply([row(1), row(2)], LogWrite(ballot=(1, "b"), entries=[entry(1), entry(2), entry(3)], applied=2))
    start = LogStart(9, 4, b"members")
    store.apply([row(9)], LogWrite(restored=start, entries=[entry(10, 4)], applied=9))
    assert store.load()["queues"] == [Row(("/", "q9"), {"index": 9})]
    assert reopened(store, path) == LogFound((1, "b"), start, [entry(10, 4)], 9)


def test_the_map_grows_with_the_log(path):
    store = MetadataStore(path, map_size=1 << 16)
    store.apply([], BEGIN)
    store.apply([row(1)], LogWrite(entries=[(index, 1, 1, bytes(1000)) for index in range(1, 500)], applied=1))
    assert len(reopened(store, path).entries) == 499


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda log, state, change: change.delete((2).to_bytes(8, "big"), db=log), "entry 2 of the log is missing"),
        (lambda log, state, change: change.put((2).to_bytes(8, "big"), b"x", db=log), "entry 2 of the log is cut off"),
        (
            lambda log, state, change: change.put(b"ballot", bytes(9), db=state),
            "'ballot' of the log has a wrong",
        ),
        (
            lambda log, state, change: change.delete((3).to_bytes(8, "big"), db=log),
            "have entry 3 applied, .* at 2",
        ),
    ],
)
def test_damage_is_found(store, path, damage, complaint):
    store.apply([], BEGIN)
    store.apply([], LogWrite(entries=[entry(1), entry(2), entry(3)], applied=3))
    store.close()
    with lmdb.open(path, max_dbs=64) as environment:
        log, state = environment.open_db(b"consensus_log"), environment.open_db(b"consensus")
        with environment.begin(write=True) as transaction:
            damage(log, state, transaction)
    with pytest.raises(MetadataError, match=f"is damaged: .*{complaint}"):
        MetadataStore(path).load_log()


#: Writes batches for ever, and prints the last index, the term and the applied index of each when it is durable. Some
#: batches replace the tail, some forget the beginning, and each has the rows of what it applies.
WRITER = """
import random, sys
from warren.store.data_dir.log_tables import LogStart, LogWrite
from warren.store.data_dir.metadata_store import Change, MetadataStore
path, seed = sys.argv[1], int(sys.argv[2])
draw = random.Random(seed)
store = MetadataStore(path, map_size=1 << 17)
store.apply([], LogWrite(ballot=(0, None), applied=0, start=LogStart(0, 0, b"")))
last = applied = start = term = 0
while True:
    ballot = None
    if draw.random() < 0.2:
        term += 1
        ballot = term, "a"
        last = draw.randint(applied, last)
    entries = [(last + at, term, 1, b"e%d" % (last + at)) for at in range(1, draw.randint(1, 20))]
    last += len(entries)
    done = draw.randint(applied, last)
    rows = [Change("queues", (str(index),), {"index": index}) for index in range(applied + 1, done + 1)]
    applied = done
    to = None
    if draw.random() < 0.2:
        start = draw.randint(start, applied)
        to = LogStart(start, 0, b"")
    store.apply(rows, LogWrite(ballot=ballot, entries=entries, applied=applied, start=to))
    print(last, term, applied, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_takes_whole_batches(tmp_path, seed):
    """A kill leaves whole batches: whatever was reported before it is there, and rows and log belong together."""
    path = str(tmp_path / "metadata")
    draw = random.Random(seed)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, str(seed)], stdout=subprocess.PIPE, text=True, cwd="/"
    ) as writer:
        assert writer.stdout is not None
        for _ in range(draw.randint(1, 60)):
            reported = writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
    reports = [line for line in (reported, *rest) if line.endswith("\n")]
    last, term, applied = map(int, reports[-1].split())
    store = MetadataStore(path)
    found = store.load_log()
    rows = sorted(row.fields["index"] for row in store.load()["queues"])
    store.close()
    assert found is not None
    assert found.ballot[0] >= term
    assert found.applied >= applied
    assert rows == list(range(1, found.applied + 1))
    end = found.entries[-1][0] if found.entries else found.start.index
    # A batch that the kill overtook may have replaced the tail in a later term.
    assert end >= last or found.ballot[0] > term
    assert all(data == b"e%d" % index for index, _, _, data in found.entries)
