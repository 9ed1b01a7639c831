"""The message index against a plain model: a list of messages, each with its keys and its fate."""

import shutil
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from warren.store.disk.lmdb_check import DamagedFile, check_file
from warren.store.message_index import key_engine, message_index
from warren.store.message_index.hash_files import HashFiles
from warren.store.message_index.message_index import (
    PRUNE_STEP,
    Engine,
    IndexedQueue,
    MessageIndex,
    OtherEngineError,
)
from warren.store.message_index.steps import LOST, Gone, Put, Rest

MANY = 1 << 30
SECRET = b"0123456789abcdef"
KEYS = (b"a", b"b", b"order 4711")
RETENTION = 50
#: With files so small that chains, collisions and further files are common.
ENGINES = [Engine(), Engine("hash", 4, 64), Engine("hash-java", 2, 16)]


@dataclass
class Known:
    """A message in the model."""

    queue: int
    number: int
    stored_at: int
    keys: list
    reason: str = ""
    gone_at: int = 0


class AgainstModel(RuleBasedStateMachine):
    """Random reports of two queues, with repeated reports, reopened environments and messages that expire."""

    @initialize()
    def open(self):
        self.path = self.directory.mktemp("index")
        self.now = 1000
        self.model = {}
        self.next = {1: 0, 2: 0}
        self.reopen(first=True)

    @rule()
    def reopen(self, first=False):
        if not first:
            self.index.close()
        self.index = MessageIndex(str(self.path), MANY, 7, SECRET, self.engine)
        for number in self.next:
            if number not in self.index.queues:
                self.index.queues[number] = IndexedQueue(f"q{number}", 0, RETENTION)
                self.index.put_queue(number)

    @rule(
        queue=st.sampled_from((1, 2)),
        keys=st.lists(st.lists(st.sampled_from(KEYS), max_size=2, unique=True), min_size=1, max_size=5),
        back=st.integers(0, 3),
        passed=st.integers(0, 20),
        gone=st.booleans(),
    )
    def put(self, queue, keys, back, passed, gone):
        """Report messages, some of which may have been reported before with another time."""
        self.now += passed
        first = max(0, self.next[queue] - back)
        again = [self.model.get((queue, number)) for number in range(first, self.next[queue])]
        if None in again:
            first, again = self.next[queue], []
        keys = [known.keys for known in again] + keys
        steps = [Put(first, self.now, keys)]
        for number, own in enumerate(keys, first):
            self.model.setdefault((queue, number), Known(queue, number, self.now, own))
        self.next[queue] = first + len(keys)
        if gone:
            steps.append(self.leaving(queue, [self.next[queue] - 1], "acked"))
        self.index.write([(queue, steps)])
        assert self.index.queues[queue].next_number == self.next[queue]

    def leaving(self, queue, numbers, reason):
        for number in numbers:
            known = self.model.get((queue, number))
            if known is not None and not known.reason:
                known.reason, known.gone_at = reason, self.now
        return Gone(reason, f"detail of {reason}", self.now, numbers)

    @rule(
        queue=st.sampled_from((1, 2)),
        numbers=st.lists(st.integers(0, 30), min_size=1, max_size=6),
        reason=st.sampled_from(("acked", "expired", "dead-lettered")),
    )
    def leave(self, queue, numbers, reason):
        self.index.write([(queue, [self.leaving(queue, numbers, reason)])])

    @rule(queue=st.sampled_from((1, 2)), stop=st.integers(0, 30), kept=st.frozensets(st.integers(0, 30), max_size=3))
    def rest_has_left(self, queue, stop, kept):
        reason = "purged" if kept else LOST
        self.index.write([(queue, [Rest(reason, self.now, stop, kept)])])
        for (of, number), known in self.model.items():
            if of == queue and number < stop and number not in kept and not known.reason:
                known.reason, known.gone_at = reason, self.now
        self.prune(0)

    @rule(passed=st.integers(0, 30))
    def prune(self, passed):
        self.now += passed
        assert not self.index.prune(self.now)
        self.model = {
            key: known for key, known in self.model.items() if not known.reason or known.gone_at + RETENTION > self.now
        }

    @rule(
        queues=st.sampled_from(((1,), (2,), (1, 2))),
        key=st.sampled_from(KEYS),
        begin=st.integers(900, 1200),
        length=st.integers(0, 200),
        most=st.integers(1, 5),
    )
    def find(self, queues, key, begin, length, most):
        found = self.index.find(queues, key, begin, begin + length, most)
        wanted = [
            known
            for known in self.model.values()
            if known.queue in queues and key in known.keys and begin <= known.stored_at <= begin + length
        ]
        assert found.is_truncated == (len(wanted) > most)
        assert len(found.hits) == min(most, len(wanted))
        times = sorted((known.stored_at for known in wanted), reverse=True)
        assert [hit.stored_at for hit in found.hits] == times[:most]
        for hit in found.hits:
            known = self.model[hit.queue, hit.number]
            assert key in known.keys
            assert (hit.reason, hit.gone_at) == (known.reason, known.gone_at)
            assert self.index.at_position(hit.position) == hit

    @invariant()
    def every_message_is_found_by_its_position(self):
        if not hasattr(self, "index"):
            return
        with self.index._env.begin() as transaction:
            entries = {name: transaction.stat(table)["entries"] for name, table in self.tables().items()}
        assert entries["places"] == entries["ids"] == len(self.model)
        if "keys" in entries:
            assert entries["keys"] == sum(len(known.keys) for known in self.model.values())
        assert entries["gone"] == sum(bool(known.reason) for known in self.model.values())

    def tables(self):
        index = self.index
        found = {"places": index.places, "ids": index.ids, "keys": index.keys.table, "gone": index.gone}
        return {name: table for name, table in found.items() if table is not None}

    def teardown(self):
        if hasattr(self, "index"):
            self.index.close()
            shutil.rmtree(self.path)


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", ENGINES, ids=lambda engine: engine.name)
def test_index_against_model(tmp_path_factory, kind):
    """QP-23, QP-40, QP-41: the index answers as the model does, whatever is reported, repeated, reopened or expired
    (QP-47).
    """

    class Machine(AgainstModel):
        directory = tmp_path_factory
        engine = kind

    run_state_machine_as_test(Machine, settings=settings(max_examples=20, stateful_step_count=25, deadline=None))


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def index(request, tmp_path):
    made = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, request.param)
    made.queues[1] = IndexedQueue("orders", 0, RETENTION)
    yield made
    made.close()


def test_oldest_messages_leave_a_full_index(tmp_path):
    """QP-42, QP-48: the tables stay within the limit, and the newest messages stay in them."""
    limit = 1 << 20
    index = MessageIndex(str(tmp_path / "index"), limit, 7, SECRET)
    index.queues[1] = IndexedQueue("orders", 0, RETENTION)
    for first in range(0, 40_000, 1000):
        index.write([(1, [Put(first, first, [[b"k%d" % number] for number in range(first, first + 1000)])])])
        while index.prune(0):
            pass
    assert index.find([1], b"k39999", 0, MANY, 1).hits
    assert not index.find([1], b"k0", 0, MANY, 1).hits
    index.close()
    assert (tmp_path / "index" / "data.mdb").stat().st_size <= 3 * limit


def test_an_index_becomes_smaller_when_its_limit_does(tmp_path, monkeypatch):
    """An operator may lower the limit of an index that has grown up to it. The environment has room for the commits
    that make it smaller: no message of those that fit into the new limit is lost (QP-48).
    """
    monkeypatch.setattr(message_index, "_MAP_LEAST", 1 << 16)
    path = tmp_path / "index"
    index = MessageIndex(str(path), 8 << 20, 7, SECRET)
    index.queues[1] = IndexedQueue("orders", 0, RETENTION)
    for first in range(0, 20_000, 1000):
        index.write([(1, [Put(first, first, [[b"k%d" % number] for number in range(first, first + 1000)])])])
    index.close()
    limit = (path / "data.mdb").stat().st_size // 8
    index = MessageIndex(str(path), limit, 7, SECRET)
    index.write([(1, [Put(20_000, 20_000, [[b"new"]])])])
    while index.prune(0):
        pass
    assert [len(index.find([1], key, 0, MANY, 1).hits) for key in (b"new", b"k19999", b"k0")] == [1, 1, 0]
    index.close()


def test_a_queue_that_was_removed_meanwhile(index, monkeypatch):
    """`prune` removes a queue in another thread. What was to be written or looked up of it is left out."""
    index.write([(1, [Put(0, 100, [[b"a"]])])])
    index.queues[1].is_forgotten = True
    assert not index.prune(0) and not index.queues
    index.put_queue(1)
    assert not index.find([1], b"a", 0, MANY, 9).hits
    index.put_queue(1)
    assert not index.queues


def test_deleted_queue_is_removed_after_its_retention(index):
    """Messages of a deleted queue are found until its retention is over, and then removed (QP-26, QP-35)."""
    index.write([(1, [Put(0, 100, [[b"a"]] * 3)])])
    index.queues[1].deleted_at = 120
    index.prune(120 + RETENTION - 1)
    assert len(index.find([1], b"a", 0, MANY, 9).hits) == 3
    index.prune(120 + RETENTION)
    assert not index.queues
    assert not index.find([1], b"a", 0, MANY, 9).hits


def test_forgotten_queue_is_removed_in_portions(index):
    """QP-35: one call visits at most `PRUNE_STEP` messages."""
    index.write([(1, [Put(0, 100, [[]] * (PRUNE_STEP + 5))])])
    index.queues[1].is_forgotten = True
    assert index.prune(0)
    assert index.queues
    assert not index.prune(0)
    assert not index.queues


def test_sweep_goes_on_where_it_stopped(index):
    """A sweep of many messages takes several calls, and spares messages that come meanwhile."""
    count = PRUNE_STEP + 5
    index.write([(1, [Put(0, 100, [[b"a"]] * count), Rest("purged", 110, 1 << 63, frozenset({count - 1}))])])
    assert index.prune(0)
    index.write([(1, [Put(count, 120, [[b"new"]])])])
    assert not index.prune(0)
    assert index.find([1], b"a", 0, MANY, 9).hits[0].reason == ""
    assert {hit.reason for hit in index.find([1], b"a", 0, MANY, 9).hits[1:]} == {"purged"}
    assert index.find([1], b"new", 0, MANY, 9).hits[0].reason == ""


def test_a_number_that_is_given_again_is_another_message(index):
    """If a queue's number for a message is given again, the former message leaves the index, so that it is not found
    under the key of the new one.
    """
    index.write([(1, [Put(0, 100, [[b"old"]])])])
    index.write([(1, [Put(0, 200, [[b"new"]])])])
    assert not index.find([1], b"old", 0, MANY, 9).hits
    assert index.find([1], b"new", 0, MANY, 9).hits[0].stored_at == 200


def test_positions_begin_again_above_those_of_a_lost_index(tmp_path):
    """After the loss of an index, positions begin above those of the lost one, so that no id names two messages
    (QP-22).
    """
    path = str(tmp_path / "index")
    for created_at in (1000, 2000):
        index = MessageIndex(path, MANY, created_at, SECRET)
        index.queues[1] = IndexedQueue("orders", 0, RETENTION)
        index.write([(1, [Put(0, 1, [[]])])])
        assert index.position == created_at + 1
        index.close()
        shutil.rmtree(path)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_cut_file_is_recognised(tmp_path, part):
    """An index file that was cut is found to be damaged before LMDB opens it, which would kill the process."""
    index = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET)
    index.queues[1] = IndexedQueue("orders", 0, RETENTION)
    index.write([(1, [Put(0, 100, [[b"%d" % number] for number in range(5000)])])])
    index.close()
    file = tmp_path / "index" / "data.mdb"
    with file.open("r+b") as opened:
        opened.truncate(int(file.stat().st_size * part))
    with pytest.raises(DamagedFile):
        check_file(str(file))


# -- the files of the engine `hash` ---


def filled(path, engine, *reports):
    index = MessageIndex(str(path), MANY, 7, SECRET, engine)
    index.queues[1] = IndexedQueue("orders", 0, RETENTION)
    for first, at, keys in reports:
        index.write([(1, [Put(first, at, keys)])])
    return index


def files(path):
    return sorted(each for each in (path / "keys").iterdir() if each.suffix == "")


SMALL = Engine("hash", 4, 16)
MANY_KEYS = [(first, 100 + first, [[b"k%d" % first]]) for first in range(50)]


@pytest.mark.parametrize("damage", ["lost", "cut", "header", "meta", "garbled meta", "finished header"])
def test_damaged_files_are_made_anew(tmp_path, caplog, damage):
    """Damaged files of the engine are made anew, and every message is found again, because the table of messages has
    the hashes of their keys.
    """
    index = filled(tmp_path / "index", SMALL, *MANY_KEYS)
    index.close()
    first, *_, last = files(tmp_path / "index")
    if damage == "lost":
        shutil.rmtree(tmp_path / "index" / "keys")
    elif damage == "cut":
        with last.open("r+b") as file:
            file.truncate(100)
    elif damage == "header":
        with last.open("r+b") as file:
            file.write(b"\xff" * 40)
    elif damage == "finished header":
        with first.open("r+b") as file:
            file.seek(32)
            file.write(b"\0\0\0\1")
    else:
        meta = last.with_name(f"{last.name}.meta")
        meta.write_text("{}" if damage == "meta" else "no json")
    index = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, SMALL)
    for number in range(50):
        [hit] = index.find([1], b"k%d" % number, 0, MANY, 9).hits
        assert (hit.number, hit.stored_at) == (number, 100 + number)
    index.close()
    assert ("damaged" in caplog.text) == (damage != "lost")


def test_a_repair_that_a_crash_has_interrupted_begins_again(tmp_path, monkeypatch):
    """If the broker is killed while lost files are made anew, the next start makes them anew again: every message is
    found under its keys.
    """
    filled(tmp_path / "index", SMALL, *MANY_KEYS).close()
    shutil.rmtree(tmp_path / "index" / "keys")

    class Killed(BaseException):
        """The broker is killed."""

    def put(files, rows):
        if files.end:
            raise Killed
        real(files, rows)

    real = HashFiles.put
    with monkeypatch.context() as patch:
        patch.setattr(HashFiles, "put", put)
        patch.setattr(key_engine, "REPAIR_STEP", 20)
        with pytest.raises(Killed):
            MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, SMALL)
    for _ in range(2):
        index = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, SMALL)
        assert all(index.find([1], b"k%d" % number, 0, MANY, 9).hits for number in range(50))
        index.close()


def test_files_without_a_message_are_removed(tmp_path):
    """A file of the engine is removed when its messages have left, even if older files still have some; the newest one
    stays (QP-13).
    """
    index = filled(tmp_path / "index", SMALL, *MANY_KEYS)
    before = files(tmp_path / "index")
    assert len(before) == 4, "15 keys in each file"
    index.write([(1, [Gone("acked", "", 200, [*range(15, 45)])])])
    assert not index.prune(200 + RETENTION)
    after = files(tmp_path / "index")
    assert after == [before[0], before[3]]
    assert {each.suffix for each in (tmp_path / "index" / "keys").iterdir()} == {"", ".meta"}
    assert index.find([1], b"k3", 0, MANY, 9).hits and not index.find([1], b"k20", 0, MANY, 9).hits
    index.write([(1, [Gone("acked", "", 300, [*range(50)])])])
    assert not index.prune(300 + RETENTION)
    assert files(tmp_path / "index") == [before[3]]
    index.close()


def test_positions_of_a_transaction_that_failed_are_not_given_again(tmp_path, monkeypatch):
    """Positions of a failed transaction are not given again, because the keys of that attempt are already in the files,
    and messages would be found twice.
    """
    index = filled(tmp_path / "index", SMALL, (0, 100, [[b"a"]]))

    class Refusing(Exception):
        pass

    real = index._put_queue
    monkeypatch.setattr(index, "_put_queue", lambda *_: (_ for _ in ()).throw(Refusing))
    with pytest.raises(Refusing):
        index.write([(1, [Put(1, 110, [[b"a"], [b"a"]])])])
    monkeypatch.setattr(index, "_put_queue", real)
    index.write([(1, [Put(1, 110, [[b"a"], [b"a"]])])])
    assert [hit.number for hit in index.find([1], b"a", 0, MANY, 9).hits] == [2, 1, 0]
    index.close()
    index = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, SMALL)
    index.write([(1, [Put(3, 120, [[b"a"]])])])
    assert [hit.number for hit in index.find([1], b"a", 0, MANY, 9).hits] == [3, 2, 1, 0]
    index.close()


def test_index_of_another_engine_is_refused(tmp_path):
    filled(tmp_path / "index", Engine(), (0, 100, [[b"a"]])).close()
    with pytest.raises(OtherEngineError, match="the engine 'lmdb' has made it, not 'hash'"):
        MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET, SMALL)
    MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET).close()


def test_an_index_from_before_there_were_engines_is_one_of_lmdb(tmp_path):
    index = filled(tmp_path / "index", Engine(), (0, 100, [[b"a"]]))
    with index._env.begin(write=True) as transaction:
        transaction.delete(b"engine", db=index._meta)
    index.close()
    index = MessageIndex(str(tmp_path / "index"), MANY, 7, SECRET)
    assert index.find([1], b"a", 0, MANY, 9).hits
    index.close()
