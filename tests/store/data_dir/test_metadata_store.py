"""`MetadataStore`: whole commits, reopening, growth, full disks, damage (queue-and-store section 11, QS-40, QS-41)."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from random import Random

import lmdb
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.store.data_dir import metadata_store
from warren.store.data_dir.metadata_store import TABLES, Change, MetadataError, MetadataStore, MetadataWriteError, Row
from warren.store.disk.lmdb_check import DamagedFile, check_file

NAMES = st.sampled_from(["", "q", "ü", "\udcff", "n" * 255])
KEYS = st.tuples(NAMES, NAMES) | st.tuples(NAMES, st.binary(max_size=600))
FIELDS = st.dictionaries(
    st.sampled_from("abc"),
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | NAMES | st.binary(max_size=20) | st.just(bytes(5000)),
)
CHANGES = st.builds(Change, st.sampled_from(TABLES), KEYS, st.none() | FIELDS)


def contents(store: MetadataStore) -> dict:
    return {name: dict(rows) for name, rows in store.load().items()}


class Machine(RuleBasedStateMachine):
    """The store against four dicts: closed or killed (files copied between two commits), and reopened."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.path = f"{self.root}/metadata"
        self.model: dict = {name: {} for name in TABLES}
        # A small map, so that it grows often.
        self.store = MetadataStore(self.path, map_size=1 << 16)
        self.copies = 0

    @rule(changes=st.lists(CHANGES, max_size=12))
    def apply(self, changes):
        self.store.apply(changes)
        for table, key, fields in changes:
            if fields is None:
                self.model[table].pop(key, None)
            else:
                self.model[table][key] = fields

    @rule()
    def reopen(self):
        self.store.close()
        self.store = MetadataStore(self.path, map_size=1 << 16)

    @precondition(lambda self: self.copies < 3)
    @rule()
    def kill(self):
        self.copies += 1
        killed = self.path
        self.path = f"{self.root}/{self.copies}"
        shutil.copytree(killed, self.path)
        self.store.close()
        self.store = MetadataStore(self.path, map_size=1 << 16)

    @invariant()
    def holds_what_was_written(self):
        assert contents(self.store) == self.model
        check_file(f"{self.path}/data.mdb")

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.root)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "metadata")


@pytest.fixture
def store(path):
    store = MetadataStore(path)
    yield store
    store.close()


def put(number: int, size: int = 10) -> Change:
    return Change("queues", ("/", f"q{number}"), {"arguments": bytes(size)})


def names(store: MetadataStore) -> list[str]:
    return sorted(row.key[1] for row in store.load()["queues"])


class TestBatches:
    def test_later_changes_of_a_row_count(self, store):
        store.apply(
            [
                put(1),
                Change("queues", ("/", "q1"), None),
                put(2),
                Change("queues", ("/", "q2"), {"b": 1}),
                Change("queues", ("/", "none"), None),
            ]
        )
        assert store.load()["queues"] == [Row(("/", "q2"), {"b": 1})]

    def test_keys_of_different_shape_are_different_rows(self, store):
        keys = [("a", "b"), ("ab",), ("", "ab"), (b"a", b"b"), ("a", "b", "")]
        store.apply([Change("bindings", key, {}) for key in keys])
        assert {row.key for row in store.load()["bindings"]} == set(keys)

    def test_ten_thousand_at_once_grow_the_map(self, path):
        """The caller never sees MDB_MAP_FULL: the map grows."""
        store = MetadataStore(path, map_size=1 << 16)
        store.apply([put(number, 100) for number in range(10_000)])
        store.apply([put(10_000, 3_000_000)])
        store.close()
        again = MetadataStore(path, map_size=1 << 16)
        assert len(again.load()["queues"]) == 10_001
        again.apply([put(10_001)])
        again.close()

    def test_closing_lets_the_commit_under_way_finish(self, path, monkeypatch):
        store = MetadataStore(path)
        reached, go_on = threading.Event(), threading.Event()
        commit = store._commit

        def slow(*arguments):
            reached.set()
            go_on.wait(60)
            commit(*arguments)

        monkeypatch.setattr(store, "_commit", slow)
        writer = threading.Thread(target=store.apply, args=([put(1)],))
        writer.start()
        reached.wait(60)
        store.close()
        store.close()
        go_on.set()
        writer.join(60)
        with pytest.raises(MetadataWriteError, match="is closed"):
            store.apply([put(2)])
        again = MetadataStore(path)
        assert names(again) == ["q1"]
        again.close()


class TestDiskErrors:
    @pytest.fixture
    def full_disk(self, path):
        """Make the system refuse to let any file of this process grow beyond the size of the store's file."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def fill(is_full):
            limit = os.path.getsize(f"{path}/data.mdb") if is_full else before[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

        yield fill
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_a_full_disk_refuses_and_loses_nothing(self, store, path, full_disk):
        store.apply([put(1)])
        full_disk(True)
        for _ in range(3):
            with pytest.raises(MetadataWriteError, match="File too large"):
                store.apply([put(number, 3000) for number in range(2, 100)])
        assert names(store) == ["q1"]
        full_disk(False)
        store.apply([put(2)])
        store.close()
        again = MetadataStore(path)
        assert names(again) == ["q1", "q2"]
        again.close()

    def test_an_environment_that_gave_up_is_opened_anew(self, store, monkeypatch):
        """After a failed write of a meta page LMDB refuses every call until the environment is reopened, so the store
        reopens it.
        """
        store.apply([put(1)])
        broken = [
            lmdb.PanicError("mdb_txn_begin: MDB_PANIC: Update of meta page failed or environment had fatal error")
        ]
        real = store._env

        class Env:
            def begin(self, **options):
                raise broken[0]

            def close(self):
                real.close()

        store._env = Env()
        with pytest.raises(MetadataWriteError, match="Update of meta page failed"):
            store.apply([put(2)])
        store.apply([put(3)])
        assert names(store) == ["q1", "q3"]

    def test_a_directory_that_cannot_be_made(self, tmp_path, monkeypatch):
        def refuse(path):
            raise OSError(28, os.strerror(28), path)

        monkeypatch.setattr(metadata_store, "_create", refuse)
        with pytest.raises(MetadataError, match="cannot be opened: No space left on device. Check the free space"):
            MetadataStore(str(tmp_path / "metadata"))


class TestCreation:
    def test_it_is_made_in_one_transaction(self, store):
        """Each transaction waits for the disk twice, and the first start of a node waits for all of them."""
        assert store._env.info()["last_txnid"] == 1

    def test_a_crash_while_it_is_made_leaves_nothing_in_the_way(self, path):
        os.mkdir(f"{path}.new")
        with open(f"{path}.new/data.mdb", "wb") as file:
            file.write(b"half")
        store = MetadataStore(path)
        assert store.load() == {name: [] for name in TABLES}
        assert not os.path.exists(f"{path}.new")
        store.close()


class TestDamage:
    """A damaged environment is refused with a text that names the damage."""

    @pytest.fixture
    def data(self, path):
        store = MetadataStore(path)
        for start in range(0, 100, 10):
            store.apply([put(number, 400 + number * 60) for number in range(start, start + 10)])
        store.close()
        return f"{path}/data.mdb"

    def refusal(self, path) -> str:
        with pytest.raises(MetadataError) as caught:
            store = MetadataStore(path)
            try:
                store.load()
            finally:
                store.close()
        assert f"the metadata in '{path}'" in str(caught.value)
        return str(caught.value)

    def test_missing_and_empty(self, path, data):
        os.truncate(data, 0)
        assert "is damaged: the file is empty. Restore that directory from a backup" in self.refusal(path)
        os.unlink(data)
        assert "is damaged: data.mdb is missing" in self.refusal(path)

    @pytest.mark.parametrize("size", [1, 100, 4096, 5000, 8192, 20_000])
    def test_cut_off(self, path, data, size):
        os.truncate(data, size)
        assert "is damaged: " in self.refusal(path)

    def test_not_lmdb(self, path, data):
        with open(data, "wb") as file:
            file.write(b"something else " * 10_000)
        assert "it is not an LMDB file" in self.refusal(path)

    def test_a_row_that_changed(self, path, data):
        with open(data, "rb") as file:
            content = file.read()
        with open(data, "wb") as file:
            file.write(content.replace(b"\xa9arguments", b"\xa9argumentz"))
        assert "of queues has a wrong checksum" in self.refusal(path)

    def test_a_newer_row_and_a_newer_format(self, path, data):
        with lmdb.open(path, max_dbs=16) as environment:
            queues, meta = environment.open_db(b"queues"), environment.open_db(b"meta")
            with environment.begin(write=True) as transaction:
                key, value = next(iter(transaction.cursor(queues)))
                transaction.put(key, b"\2" + value[1:], db=queues)
        assert "was written by a newer warren: queues has rows of version 2" in self.refusal(path)
        with lmdb.open(path, max_dbs=16) as environment:
            with environment.begin(meta := environment.open_db(b"meta"), write=True) as transaction:
                transaction.put(b"format", (3).to_bytes(4, "big"))
            assert meta
        assert "was written by a newer warren: it has format 3" in self.refusal(path)

    def test_without_a_format(self, path, data):
        with lmdb.open(path, max_dbs=16) as environment:
            with environment.begin(environment.open_db(b"meta"), write=True) as transaction:
                transaction.delete(b"format")
        assert "it has no format number" in self.refusal(path)

    def test_whatever_is_written_over_it(self, tmp_path):
        """Whatever is written over a metadata store, it is refused or works. This runs in a process of its own, because
        LMDB would kill it at damage that the check misses.
        """
        child = subprocess.run(
            [sys.executable, __file__, str(tmp_path), "600"], capture_output=True, text=True, timeout=300
        )
        assert child.returncode == 0, f"it ended with {child.returncode}: {child.stdout}{child.stderr}"


class TestCheck:
    """`lmdb_check` of environments that LMDB itself wrote."""

    def test_accepts_what_lmdb_writes(self, tmp_path):
        random = Random(1)
        with lmdb.open(str(tmp_path), max_dbs=3, map_size=1 << 26) as environment:
            dbs = [environment.open_db(name) for name in (b"a", b"b")]
            for _ in range(60):
                with environment.begin(write=True) as transaction:
                    for _ in range(40):
                        key = random.randrange(2000).to_bytes(4, "big") * random.choice((1, 60))
                        if random.random() < 0.5:
                            transaction.delete(key, db=random.choice(dbs))
                        else:
                            transaction.put(key, bytes(random.choice((0, 10, 1000, 20_000))), db=random.choice(dbs))
                check_file(f"{tmp_path}/data.mdb")
            with environment.begin(write=True) as transaction:
                transaction.drop(dbs[0])
            check_file(f"{tmp_path}/data.mdb")

    def test_a_page_in_two_places(self, tmp_path):
        with lmdb.open(str(tmp_path), max_dbs=3) as environment:
            for name in (b"a", b"b"):
                with environment.begin(environment.open_db(name), write=True) as transaction:
                    transaction.put(b"key", b"value")
        data = bytearray((tmp_path / "data.mdb").read_bytes())
        for page in range(2 * 4096, len(data), 4096):
            a, b = (data.find(name + bytes(6) + b"\1\0", page, page + 4096) for name in (b"a", b"b"))
            if a > 0 and b > 0:
                data[a + 41 : a + 49] = data[b + 41 : b + 49]  # the roots of the two tables
        (tmp_path / "data.mdb").write_bytes(data)
        with pytest.raises(DamagedFile, match="is referred to twice"):
            check_file(f"{tmp_path}/data.mdb")


def overwrite(root: str, rounds: int) -> Counter:
    """Damage a store `rounds` times at random: it must be refused, or hold its old rows and accept new ones."""
    random = Random(2)
    path, copy = f"{root}/metadata", f"{root}/copy"
    store = MetadataStore(path, map_size=1 << 20)
    for _ in range(20):
        fields = [None, {"a": bytes(random.randrange(200))}, {"b": bytes(random.choice((100, 3000, 9000)))}]
        store.apply(
            [
                Change(random.choice(TABLES), ("/", f"q{random.randrange(200)}"), random.choice(fields))
                for _ in range(20)
            ]
        )
    good = store.load()
    store.close()
    with open(f"{path}/data.mdb", "rb") as file:
        data = file.read()
    os.mkdir(copy)
    seen: Counter = Counter()
    for _ in range(rounds):
        bad = bytearray(data)
        page = random.randrange(len(bad) // 4096) * 4096
        kind = random.randrange(4)
        if kind == 0:
            bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
        elif kind == 1:
            bad[page : page + 4096] = bytes(4096)
        elif kind == 2:
            bad[page + random.randrange(64)] = random.randrange(256)
        else:
            bad[page : page + 512] = random.randbytes(512)
        with open(f"{copy}/data.mdb", "wb") as file:
            file.write(bad)
        try:
            store = MetadataStore(copy)
        except MetadataError:
            seen["refused at opening"] += 1
            continue
        try:
            assert store.load() == good
            store.apply([put(number, 500) for number in range(40)])
            seen["as it was"] += 1
        except MetadataError:
            seen["refused at loading"] += 1
        finally:
            store.close()
    assert len(seen) == 3, seen
    return seen


if __name__ == "__main__":
    print(overwrite(sys.argv[1], int(sys.argv[2])))
