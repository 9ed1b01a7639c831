"""The table of crash points (queue-and-store section 10.2): a virtual host's store is stopped just there, by a kill and by power cuts that lose, tear or zero what was
not synced.

Each has its test here under its number, but for C-17 (test_vhost_store.py), C-19 (test_message_store_cases.py) and C-20 (test_message_store_combine.py). The model
tests of this folder stop at random places; here it is certain that the place is met.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from warren.store.bodies.location_index import LocationIndex
from warren.store.data_dir.vhost_store import VhostStore, Work
from warren.store.disk.faulty_disk import Crash, FaultyDisk
from warren.store.messages.message import Origin, body_size
from warren.store.queue.backing_queue import BackingQueue

SMALL, LARGE = 1, 100
"""Bytes of bodies that are embedded in the index, and that go to the message store."""
SEGMENT = 16
Found = list[tuple[int, bytes, bool]]
"""Number, content and whether it is redelivered, in the queue's order."""


def content(mark: int, size: int) -> bytes:
    return (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + size.to_bytes(8, "big")
        + b"\x10\x00\x02\xce"
        + mark.to_bytes(8, "big")
        + bytes(size)
    )


class Vhost:
    """One queue, `queue`, on a disk that forgets. `end` is how it ends: 'kill', or the seed of a power cut."""

    def __init__(self, root: Path, end: str | int, max_priority: int | None = None) -> None:
        self.root = str(root)
        self.way = end
        self.max_priority = max_priority
        self.disk = FaultyDisk()
        self.boot = self.mark = self.dies_at = 0
        self.has_died = False
        self.queues = {1}
        self.start()

    def start(self) -> None:
        self.store = VhostStore(
            self.disk,
            self.root,
            segment_entries=SEGMENT,
            embed_below=60,
            journal_file_limit=2500,
            store_file_limit=1000,
            boot_id=str(self.boot),
        )
        self.store.recover(self.queues)
        self.queue: BackingQueue = self.store.open_queue(1, self.max_priority) if self.queues else None  # type: ignore[assignment]

    def let_go(self) -> None:
        """A process that ends holds nothing open."""
        self.store.persistent.engine.abandon()
        self.store.transient.engine.abandon()
        if self.way == "kill":
            self.disk.kill()
        else:
            self.disk.crash(Random(self.way))
            self.boot += 1

    def end(self) -> None:
        self.let_go()
        self.start()

    def publish(self, count: int, size: int, persistent: bool = True, priority: int = 0) -> list[bytes]:
        contents = [content(self.mark + at, size) for at in range(count)]
        self.mark += count
        self.queue.publish(
            Origin("", ("q",), b"\x10\x00\x02", persistent=persistent, priority=priority),
            contents,
            count * size,
            None,
            True,
        )
        return contents

    def kept(self, count: int, size: int, **more: int) -> list[bytes]:
        """The same, confirmed."""
        contents = self.publish(count, size, **more)
        self.store.write_all()
        assert sum(last - first + 1 for first, last in self.queue.drain_confirmed()) == count
        return contents

    def taken(self, count: int) -> list[int]:
        """The tags of so many messages, delivered."""
        return [tag for delivery in self.queue.fetch(count, True) for tag in delivery.tags]

    def work(self) -> Work:
        work = self.store.take_work()
        assert work is not None
        return work

    def dies_in(self, action: Callable[[], object], operations: int) -> bool:
        """Run it up to that operation of the disk; False if it has not so many."""
        self.disk.fail_after(operations, Crash())
        try:
            action()
        except Crash:
            return True
        finally:
            self.disk.heal()
        return False

    def run(self, action: Callable[[], object]) -> None:
        """See `each_operation`."""
        self.has_died = self.dies_in(action, self.dies_at)

    def found(self) -> Found:
        """All there is, without consuming it; and every count agrees with that."""
        found: Found = self.queue.fold(
            lambda message, is_pending, acc: ([*acc, (message.tag, message.content, message.redelivered)], True), []
        )
        assert len(found) == len(self.queue) == self.queue.depth()
        assert self.queue.ready_bytes == sum(body_size(got) for _, got, _ in found)
        self.store.persistent.engine.check()
        return found

    def contents(self) -> list[bytes]:
        return [got for _, got, _ in self.found()]

    @property
    def wanted_bytes(self) -> int:
        """Of bodies in the message store."""
        return self.store.persistent.engine.file_sizes[1]

    @property
    def segments(self) -> list[str]:
        return self.disk.list("queues/100") if self.disk.exists("queues/100") else []


@pytest.fixture(params=["kill", *range(4)], ids=lambda end: end if end == "kill" else f"power cut {end}")
def end(request: pytest.FixtureRequest) -> str | int:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def vhost(tmp_path: Path, end: str | int) -> Vhost:
    return Vhost(tmp_path, end)


def to_segments(vhost: Vhost) -> Work:
    """Publish until the journal has closed a file; returns the work that folds the queue, not yet run."""
    while True:
        work = vhost.store.take_work()
        if work is None:
            vhost.publish(5, SMALL)
        elif work.folds:
            vhost.queue.drain_confirmed()
            return work
        else:
            work.run()
            vhost.store.done(work)


def each_operation(tmp_path: Path, ways: Iterable[str | int], least: int) -> Iterator[Vhost]:
    """For every way to end and every operation of the disk a vhost whose `run` ends there: until one has run to the end of what it does, of more than `least` operations."""
    for way in ways:
        for operations in itertools.count(1):
            vhost = Vhost(tmp_path / f"{way} {operations}", way)
            vhost.dies_at = operations
            yield vhost
            vhost.let_go()
            if not vhost.has_died:
                assert operations > least
                break


def folded(vhost: Vhost) -> None:
    """The same, run; the journal has not heard of it yet."""
    work = to_segments(vhost)
    work.run()
    vhost.store.done(work)


# --- bodies and entries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operations", range(4))
def test_c_1_body_in_the_buffer_of_the_store(vhost, operations):
    """In memory, or written and not synced: absent or complete, and not confirmed."""
    published = vhost.publish(3, LARGE)
    work = vhost.work()
    if operations:
        assert vhost.dies_in(lambda: work.stores[0][1].write(), operations)
    assert vhost.queue.drain_confirmed() == []
    vhost.end()
    assert set(vhost.contents()) <= set(published)
    assert vhost.kept(2, LARGE) == vhost.contents()[-2:]


def test_c_2_body_durable_and_its_entry_not(vhost):
    """An orphan: the recount finds nobody who wants it."""
    vhost.publish(3, LARGE)
    for _, work in vhost.work().stores:
        work.write()
    vhost.end()
    assert (vhost.found(), vhost.wanted_bytes) == ([], 0)


def test_c_3_entry_durable_and_its_body_not(vhost):
    """The entry is acknowledged away; the messages with bodies stay, at this start and the next."""
    kept = vhost.kept(2, LARGE)
    vhost.publish(3, LARGE)
    kept += vhost.publish(2, SMALL)
    batch = vhost.work().journal_batch
    vhost.store.journal.commit(batch)
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_4_both_durable_and_the_confirm_not_sent(vhost, size):
    published = vhost.publish(3, size)
    vhost.work().run()
    assert vhost.queue.drain_confirmed() == []
    vhost.end()
    assert vhost.contents() == published


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_5_confirm_sent(vhost, size):
    """Present, and redelivered."""
    kept = vhost.kept(3, size)
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("is_synced", [True, False])
def test_c_6_embedded(vhost, is_synced):
    """Entry and body are one record: present if the journal was synced; absent if it was not written."""
    published = vhost.publish(3, SMALL)
    if is_synced:
        vhost.work().run()
    vhost.end()
    assert vhost.contents() == (published if is_synced else [])


# --- acknowledgements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_7_delivered_and_not_acked(vhost, size):
    kept = vhost.kept(4, size)
    vhost.taken(2)
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("store_heard", [True, False])
def test_c_8_ack_in_the_buffer_of_the_journal(vhost, size, store_heard):
    """It comes back with its body, for the store counts references anew, even if it had committed that nobody wants it."""
    kept = vhost.kept(4, size)
    vhost.queue.ack(vhost.taken(2))
    if store_heard:
        job = vhost.store.persistent.engine.take_sync(everything=True)
        assert (job is None) == (size == SMALL)
        if job is not None:
            job.run()
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_9_ack_durable_and_the_store_has_not_heard(vhost, size):
    """Absent, and the recount frees the body."""
    kept = vhost.kept(4, size)
    vhost.queue.ack(vhost.taken(3))
    batch = vhost.store.journal.take_batch()
    vhost.store.journal.commit(batch)
    vhost.end()
    assert vhost.contents() == kept[3:]
    assert vhost.wanted_bytes == (len(kept[3]) + 30 if size == LARGE else 0)


def test_c_10_file_of_an_acked_body_gone_and_the_ack_not_durable(vhost):
    """Absent, which it may be, for it was acknowledged; what was not is there."""
    kept = vhost.kept(30, LARGE)
    files = {name for name in vhost.disk.list("msg_store_persistent") if name.endswith(".rdq")}
    vhost.queue.ack(vhost.taken(28))
    vhost.store.persistent.write_all()
    assert len(files - set(vhost.disk.list("msg_store_persistent"))) >= 3
    vhost.end()
    found = vhost.contents()
    assert found[-2:] == kept[-2:] and set(found) < set(kept) and len(found) < 15
    vhost.end()
    assert vhost.contents() == found


# --- folding ----------------------------------------------------------------------------------------------------------


def test_c_11_middle_of_a_segment_append(tmp_path):
    """D-9: the torn tail is cut, and the journal still has it all. Killed at each operation of the fold, and with every fate of what was not synced."""
    torn = 0
    for vhost in each_operation(tmp_path, ("kill", *range(4)), 5):
        work = to_segments(vhost)
        kept = vhost.contents()
        vhost.run(lambda work=work: [flush.run() for _, flush in work.flushes])
        written = {name: vhost.disk.open(f"queues/100/{name}").size() for name in vhost.segments}
        vhost.let_go()
        torn += any(vhost.disk.open(f"queues/100/{name}").size() < written.get(name, 0) for name in vhost.segments)
        vhost.start()
        assert vhost.contents() == kept
        vhost.kept(3, SMALL)
        vhost.end()
        assert vhost.contents()[:-3] == kept
    assert torn, "no append was torn"


def test_c_12_segments_appended_and_the_journal_not_given_up(vhost):
    """What both have counts once."""
    work = to_segments(vhost)
    kept = vhost.contents()
    for _, flush in work.flushes:
        flush.run()
    for _ in range(2):
        assert len(vhost.segments) > 1
        vhost.end()
        assert vhost.contents() == kept


def test_c_13_acked_segment_unlinked_and_the_journal_not_given_up(vhost):
    """What the journal has of it resurrects nothing."""
    folded(vhost)
    kept = vhost.contents()
    vhost.queue.ack(vhost.taken(SEGMENT))
    vhost.store.journal.commit(vhost.store.journal.take_batch())
    before = vhost.segments
    flush = next(iter(vhost.store._variable.values())).folding.take_removal()
    flush.run()
    vhost.disk.sync_dir("queues/100")
    assert before[0] == "0.idx" and "0.idx" not in vhost.segments
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept[SEGMENT:]


def test_c_14_while_the_journal_is_given_up(tmp_path):
    """Whatever of its files is gone: before the RETIRE record they count, after it none does."""
    for vhost in each_operation(tmp_path, ("kill", *range(4)), 2):
        folded(vhost)
        before = vhost.contents()
        vhost.queue.ack(vhost.taken(7))
        vhost.run(vhost.store.write_all)
        vhost.end()
        assert vhost.contents() in (before, before[7:])


@pytest.mark.parametrize("spoil", ["zeros", "cut"])
def test_c_15_tail_of_the_journal(vhost, spoil):
    """Earlier records are intact, and so are those that come later."""
    kept = vhost.kept(3, SMALL)
    lost = vhost.kept(3, SMALL)
    vhost.let_go()
    name = max(vhost.disk.list("journal"))
    file = vhost.disk.open(f"journal/{name}")
    size = len(file.read(0, file.size()).rstrip(b"\0"))
    file.truncate(size - 20)
    if spoil == "zeros":
        file.append([bytes(400)])
    file.sync()
    vhost.start()
    assert vhost.contents() == kept
    later = vhost.kept(2, SMALL)
    vhost.end()
    assert vhost.contents() == kept + later
    assert not set(lost) & set(kept + later)


# --- purge and delete -------------------------------------------------------------------------------------------------


def filled(vhost: Vhost) -> list[bytes]:
    """Messages in segments, in the journal and in the store."""
    folded(vhost)
    vhost.kept(5, LARGE)
    vhost.kept(5, SMALL)
    return vhost.contents()


def test_c_16_purged(vhost):
    """All is there or nothing; what was delivered stays; after purge-ok nothing returns."""
    kept = filled(vhost)
    pending = vhost.taken(2)
    assert vhost.queue.purge() == len(kept) - 2
    vhost.end()
    assert vhost.contents() == kept
    assert vhost.taken(2) == pending
    vhost.queue.purge()
    vhost.store.write_all()
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept[:2]


def test_c_16_deleted(tmp_path):
    """QS-23: stopped at each operation of a deletion; the metadata knows of it no more, so nothing of it is left after the next start."""
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 5):
        filled(vhost)

        def delete(vhost=vhost):
            vhost.store.delete_queue(1)
            vhost.store.write_all()

        vhost.run(delete)
        vhost.let_go()
        vhost.queues = set()
        vhost.start()
        assert vhost.disk.list("queues") == [] and vhost.wanted_bytes == 0


# --- the store's files ------------------------------------------------------------------------------------------------


def test_c_18_rolled_and_the_new_file_is_empty_or_missing(tmp_path):
    """Both are accepted, and what is written next is found."""
    seen = set()
    for way in ("kill", *range(6)):
        for operations in range(1, 6):
            vhost = Vhost(tmp_path / f"{way} {operations}", way)
            kept = vhost.kept(7, LARGE)
            assert vhost.disk.list("msg_store_persistent") == ["1.rdq", "state"]
            published = vhost.publish(2, LARGE)
            assert vhost.dies_in(vhost.store.write_all, operations)
            vhost.let_go()
            new = "msg_store_persistent/2.rdq"
            seen.add(vhost.disk.open(new).size() if vhost.disk.exists(new) else None)
            vhost.start()
            found = vhost.contents()
            assert found[:7] == kept and set(found[7:]) <= set(published)
            later = vhost.kept(3, LARGE)
            vhost.end()
            assert vhost.contents() == found + later
            vhost.let_go()
    assert seen >= {None, 0}


# --- the end and the beginning ----------------------------------------------------------------------------------------


def mixed(vhost: Vhost) -> list[bytes]:
    """Some of everything; what is to be there after the next start."""
    kept = filled(vhost)
    vhost.publish(3, SMALL, persistent=False)
    vhost.queue.ack(vhost.taken(3))
    vhost.store.write_all()
    return kept[3:]


def test_c_21_between_two_steps_of_a_stop(tmp_path):
    """Terms without a clean store, or none: everything is looked through and counted anew."""
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 10):
        kept = mixed(vhost)
        vhost.run(vhost.store.stop)
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("lost", ["terms", "state", "journal"])
def test_c_21_one_of_the_three_did_not_end(vhost, monkeypatch, lost):
    """D-7: queues' terms, the store's state, the journal."""
    kept = mixed(vhost)
    if lost == "terms":
        monkeypatch.setattr("warren.store.data_dir.vhost_store.leave_vhost", lambda root, terms: None)
    elif lost == "journal":
        monkeypatch.setattr(type(vhost.store.journal), "close_flushed", lambda journal: journal.close())
    vhost.store.stop()
    monkeypatch.undo()
    if lost == "state":
        vhost.disk.delete("msg_store_persistent/state")
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept


def test_c_22_during_recovery(tmp_path):
    """QS-24: stopped at each operation of a start; the next one finds the same."""
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 10):
        kept = mixed(vhost)
        vhost.let_go()
        vhost.run(vhost.start)
        vhost.end()
        assert vhost.contents() == kept


def test_c_22_terms_count_once(vhost):
    """A start that read the terms of a clean stop and then came to an end was an unclean one."""
    kept = mixed(vhost)
    vhost.store.stop()
    vhost.let_go()
    assert vhost.dies_in(vhost.start, 3)
    vhost.end()
    assert vhost.found() == [(number, got, True) for (number, _, _), got in zip(vhost.found(), kept, strict=True)]


# --- modes and levels -------------------------------------------------------------------------------------------------


def test_c_23_becoming_lazy(tmp_path):
    """Only places in memory change: the persistent are all there, transient ones gone."""
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 5):
        kept = mixed(vhost)
        vhost.publish(20, LARGE, persistent=False)

        def become_lazy(vhost=vhost):
            vhost.queue.set_queue_mode("lazy")
            vhost.store.write_all()

        vhost.run(become_lazy)
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("flushed", [(), (0,), (2,), (0, 2)], ids=str)
def test_c_24_one_level_flushed_and_another_not(tmp_path, end, flushed):
    """Each recovers on its own."""
    vhost = Vhost(tmp_path, end, max_priority=2)
    low, high, middle = (
        vhost.kept(20, SMALL, priority=0),
        vhost.kept(20, LARGE, priority=2),
        vhost.kept(5, SMALL, priority=1),
    )
    for level in flushed:
        vhost.store._variable[1 << 8 | level].folding.flush(True)
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == high + middle + low


# --- LMDB -------------------------------------------------------------------------------------------------------------


def test_c_25_commit_missing_for_bytes_in_a_file(vhost, monkeypatch):
    """What lies behind the checkpoint is found."""
    kept = vhost.kept(3, LARGE)
    monkeypatch.setattr(LocationIndex, "commit", lambda index, changes: None)
    kept += vhost.kept(3, LARGE)
    monkeypatch.undo()
    vhost.end()
    assert vhost.contents() == kept


def test_c_26_power_loss(tmp_path):
    """All that was synced is there; the store's index is that of another boot, and is made anew, whatever became of it."""
    for seed in range(10):
        vhost = Vhost(tmp_path / f"{seed}", seed)
        kept = mixed(vhost)
        vhost.publish(5, LARGE)
        vhost.let_go()
        data = tmp_path / f"{seed}" / "msg_store_persistent" / "index" / "data.mdb"
        data.write_bytes(Random(seed).randbytes(data.stat().st_size))
        vhost.start()
        assert vhost.contents() == kept
        vhost.let_go()
