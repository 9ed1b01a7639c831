"""The table of crash points (queue-and-store section 10.2): the processes of a virtual host are stopped exactly there.

`SimVhost` runs the real processes and lets a test decide which of their writes reach the disk. A process is stopped
by a kill, and by power cuts that lose, tear or zero what was not synced. Each crash point has its test here under its
number, except C-19 (test_message_store_cases.py) and C-20 (test_message_store_combine.py). The model tests of this
folder and the simulation stop processes at random places; here it is certain that the place is met.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from warren.actors.contracts.queue import to_queue
from warren.actors.disk.journal import Journal
from warren.store.bodies.garbage_collection import GcJob
from warren.store.bodies.location_index import LocationIndex
from warren.store.bodies.rdq_file import OVERHEAD
from warren.store.bodies.sync_job import SyncJob
from warren.store.data_dir.file_limits import FileLimits
from warren.store.index.segment_jobs import FlushJob
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import body_size

from ..sim_vhost import SimQueue, SimVhost, content

#: Bytes of a body that is embedded in the index, and of one that goes to the message store.
SMALL, LARGE = 1, 100
SEGMENT = 16
LIMITS = FileLimits(journal=2500, store=1000, segment_entries=SEGMENT, embed_below=60)
#: Of each message its number, content and whether it is redelivered, in the order of the queue.
Found = list[tuple[int, bytes, bool]]


class Vhost(SimVhost):
    """A virtual host with one queue. `way` is how it ends: "kill", or the seed of a power cut.

    `sent` are the contents published since the last start, in their order.
    """

    def __init__(self, root: Path, way: str | int, max_priority: int | None = None) -> None:
        super().__init__(root, {1: max_priority}, limits=LIMITS)
        self.way = way
        self.mark = self.dies_at = 0
        self.has_died = False
        self.start()

    def let_go(self) -> None:
        """End the process, and with a power cut the machine."""
        if self.way == "kill":
            self.kill()
        else:
            self.lose_power(Random(self.way))

    def end(self) -> None:
        self.let_go()
        self.start()

    def publish(self, count: int, size: int, persistent: bool = True, priority: int = 0) -> list[bytes]:
        contents = [content(self.mark + at, size) for at in range(count)]
        self.mark += count
        self.queue.publish(contents, persistent=persistent, priority=priority)
        return contents

    def kept(self, count: int, size: int, **more: int) -> list[bytes]:
        """Publish, and wait for every confirm."""
        before = len(self.queue.confirmed)
        contents = self.publish(count, size, **more)
        self.write_all()
        assert len(self.queue.confirmed) - before == count
        return contents

    def taken(self, count: int) -> list[int]:
        """Have that many messages delivered; returns their tags."""
        return [got.tag for got in self.queue.fetch(count)]

    def run(self, action: Callable[[], object]) -> None:
        """Run it up to the operation of the disk that `each_operation` has chosen."""
        self.has_died = self.dies_in(action, self.dies_at)

    def found(self) -> Found:
        """Every message there is. They are delivered and requeued; every count agrees with them."""
        queue = self.queue
        found = [(got.tag, got.content, got.is_redelivered) for got in queue.look()]
        assert len(found) == len(queue) == queue.backing.totals().depth
        assert queue.backing.totals().ready_bytes == sum(body_size(got) for _, got, _ in found)
        self.persistent.check()
        return found

    def contents(self) -> list[bytes]:
        return [got for _, got, _ in self.found()]

    @property
    def segments(self) -> list[str]:
        return self.disk.list("queues/100") if self.disk.exists("queues/100") else []


@pytest.fixture(params=["kill", *range(4)], ids=lambda end: end if end == "kill" else f"power cut {end}")
def end(request: pytest.FixtureRequest) -> str | int:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def vhost(tmp_path: Path, end: str | int) -> Iterator[Vhost]:
    vhost = Vhost(tmp_path, end)
    yield vhost
    vhost.kill()


def to_segments(vhost: Vhost) -> list[bytes]:
    """Publish until the journal has closed a file; the flush that the journal asks of the queue is not made yet.

    Returns the contents.
    """
    contents: list[bytes] = []
    while not vhost.waits(FlushJob):
        contents += vhost.publish(5, SMALL)
        vhost.make_all(Journal)
    return contents


def flushed(vhost: Vhost) -> list[bytes]:
    """The same, and then the flush is made; the RETIRE record with which the journal gives up its file is not written
    yet.
    """
    contents = to_segments(vhost)
    vhost.make_all(FlushJob)
    assert vhost.waits(Journal)
    return contents


def each_operation(tmp_path: Path, ways: Iterable[str | int], least: int) -> Iterator[Vhost]:
    """Yield, for each way to end and each operation of the disk, a virtual host that dies at that operation of its
    `run`.

    The last virtual host of a way does not die: its `run` has fewer operations, but more than `least`.
    """
    for way in ways:
        for operations in itertools.count(1):
            vhost = Vhost(tmp_path / f"{way} {operations}", way)
            vhost.dies_at = operations
            yield vhost
            vhost.let_go()
            if not vhost.has_died:
                assert operations > least
                break


# -- bodies and entries


@pytest.mark.parametrize("operations", range(4))
def test_c_1_body_in_the_buffer_of_the_store(vhost, operations):
    """At a crash while the body is in the buffer of the store, in memory or written and not synced, its message is
    afterwards absent or complete, and was not confirmed (C-1).
    """
    published = vhost.publish(3, LARGE)
    if operations:
        assert vhost.dies_in(lambda: vhost.make(vhost.call(SyncJob)), operations)
    assert not vhost.queue.confirmed
    vhost.end()
    assert set(vhost.contents()) <= set(published)
    assert vhost.kept(2, LARGE) == vhost.contents()[-2:]


def test_c_2_body_durable_and_its_entry_not(vhost):
    """If a body is durable and its entry in the index is not, the body is an orphan: no queue refers to it when the
    next start counts references (C-2).
    """
    vhost.publish(3, LARGE)
    vhost.make_all(SyncJob)
    assert vhost.waits(Journal)
    vhost.end()
    assert (vhost.found(), vhost.wanted_bytes) == ([], 0)


def test_c_3_entry_durable_and_its_body_not(vhost):
    """If an entry is durable and its body is not, the start acknowledges the entry; messages that have bodies stay, at
    this start and the next one (C-3).
    """
    kept = vhost.kept(2, LARGE)
    vhost.publish(3, LARGE)
    kept += vhost.publish(2, SMALL)
    vhost.make_all(Journal)
    assert vhost.waits(SyncJob)
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_4_both_durable_and_the_confirm_not_sent(vhost, size):
    """Messages whose body and entry are durable are there, even if their confirm was not sent (C-4). Both calls have
    been made here, and no process has handled their results.
    """
    published = vhost.publish(3, size)
    for call in list(vhost.calls):
        vhost.make(call)
    assert not vhost.queue.confirmed
    vhost.end()
    assert vhost.contents() == published


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_5_confirm_sent(vhost, size):
    """Messages whose confirm was sent are there, marked as redelivered (C-5)."""
    kept = vhost.kept(3, size)
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("is_synced", [True, False])
def test_c_6_embedded(vhost, is_synced):
    """An embedded body is in one record with its entry: the messages are there if the journal was synced, and absent if
    it was not written (C-6).
    """
    published = vhost.publish(3, SMALL)
    if is_synced:
        vhost.make(vhost.call(Journal))
    vhost.end()
    assert vhost.contents() == (published if is_synced else [])


# -- acknowledgements


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_7_delivered_and_not_acked(vhost, size):
    """Messages that were delivered and not acknowledged are there, marked as redelivered (C-7)."""
    kept = vhost.kept(4, size)
    vhost.taken(2)
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("is_store_synced", [True, False])
def test_c_8_ack_in_the_buffer_of_the_journal(vhost, size, is_store_synced):
    """If an acknowledgement was only in the buffer of the journal, the message returns with its body, even if the store
    had committed that nothing refers to it, because the start counts references again (C-8).
    """
    kept = vhost.kept(4, size)
    vhost.queue.ack(vhost.taken(2))
    vhost.pass_time()
    assert vhost.waits(Journal)
    if is_store_synced:
        job = vhost.persistent.take_sync(everything=True)
        assert (job is None) == (size == SMALL)
        if job is not None:
            job.run()
    vhost.end()
    assert vhost.found() == [(number, got, True) for number, got in enumerate(kept)]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_c_9_ack_durable_and_not_committed_by_the_store(vhost, size):
    """If an acknowledgement is durable and the store has not committed it, the messages are absent, and counting the
    references again frees their bodies (C-9).
    """
    kept = vhost.kept(4, size)
    vhost.queue.ack(vhost.taken(3))
    vhost.pass_time()
    vhost.make(vhost.call(Journal))
    vhost.end()
    assert vhost.contents() == kept[3:]
    assert vhost.wanted_bytes == (len(kept[3]) + OVERHEAD if size == LARGE else 0)


def test_c_10_file_of_an_acked_body_gone_and_the_ack_not_durable(vhost):
    """If the file with an acknowledged body is gone and the acknowledgement is not durable, only messages that were
    acknowledged may be absent (C-10).
    """
    kept = vhost.kept(30, LARGE)
    files = {name for name in vhost.disk.list("msg_store_persistent") if name.endswith(".rdq")}
    vhost.queue.ack(vhost.taken(28))
    vhost.pass_time()
    vhost.make_all(SyncJob, GcJob)
    assert vhost.waits(Journal)
    assert len(files - set(vhost.disk.list("msg_store_persistent"))) >= 3
    vhost.end()
    found = vhost.contents()
    assert found[-2:] == kept[-2:] and set(found) < set(kept) and len(found) < 15
    vhost.end()
    assert vhost.contents() == found


# -- flushing to segments


def test_c_11_middle_of_a_segment_append(tmp_path):
    """D-9: the torn tail is cut, and the journal still has all of it.

    Stopped at each operation of the flush, with each fate of what was not synced.
    """
    torn = 0
    for vhost in each_operation(tmp_path, ("kill", *range(4)), 5):
        kept = to_segments(vhost)
        vhost.run(lambda vhost=vhost: vhost.make(vhost.call(FlushJob)))
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
    """If segments have been written and the journal has not given up its files, messages that are in both count once
    (C-12).
    """
    kept = to_segments(vhost)
    vhost.make(vhost.call(FlushJob))
    for _ in range(2):
        assert len(vhost.segments) > 1
        vhost.end()
        assert vhost.contents() == kept


def test_c_13_acked_segment_unlinked_and_the_journal_not_given_up(vhost, monkeypatch):
    """If the segment of acknowledged messages was deleted and the journal has not given up its files, their records in
    the journal bring none of the messages back (C-13).
    """
    kept = to_segments(vhost)
    tags = vhost.taken(SEGMENT)
    vhost.make(vhost.call(FlushJob))
    vhost.queue.ack(tags)
    monkeypatch.setattr(JournalEngine, "unlink_retired", lambda engine, batch: None)
    assert not [call for call in vhost.calls if call.is_of(FlushJob)], "the journal does not yet have that it goes"
    vhost.make(vhost.call(Journal))
    vhost.turn()
    monkeypatch.undo()
    before = vhost.segments
    vhost.make(vhost.call(FlushJob))
    vhost.disk.sync_dir("queues/100")
    assert before[0] == "0.idx" and "0.idx" not in vhost.segments
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept[SEGMENT:]


def test_c_14_while_the_journal_is_given_up(tmp_path):
    """While the journal gives up its files, whichever of them are gone: they all count before the RETIRE record, and
    none does after it (C-14).
    """
    for vhost in each_operation(tmp_path, ("kill", *range(4)), 2):
        before = flushed(vhost)
        vhost.queue.ack(vhost.taken(7))
        vhost.run(vhost.write_all)
        vhost.end()
        assert vhost.contents() in (before, before[7:])


@pytest.mark.parametrize("spoil", ["zeros", "cut"])
def test_c_15_tail_of_the_journal(vhost, spoil):
    """A torn or spoiled tail of the journal costs neither earlier records nor later ones (C-15)."""
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


# -- purge and delete


def filled(vhost: Vhost) -> list[bytes]:
    """Messages in segments, in the journal and in the store."""
    contents = flushed(vhost)
    contents += vhost.publish(5, LARGE)
    contents += vhost.publish(5, SMALL)
    vhost.write_all()
    assert len(vhost.queue.confirmed) == len(contents)
    return contents


def test_c_16_purged(vhost):
    """After a crash at a purge all messages are there or none; delivered ones stay; and once purge-ok was sent none
    returns (C-16).
    """
    kept = filled(vhost)
    pending = vhost.taken(2)
    answer = vhost.queue.begin(to_queue.purge())
    assert not answer.is_here, "the acks are not in the journal"
    vhost.end()
    assert vhost.contents() == kept
    assert vhost.taken(2) == pending
    assert vhost.queue.purge() == len(kept) - 2
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept[:2]


def test_c_16_deleted(tmp_path):
    """QS-23: stopped at each operation of a deletion.

    The metadata has no such queue any more, so nothing of it is left after the next start.
    """
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 5):
        filled(vhost)
        vhost.run(vhost.queue.delete)
        vhost.let_go()
        vhost.highest = {}
        vhost.start()
        assert vhost.disk.list("queues") == [] and vhost.wanted_bytes == 0


def test_c_17_queues_that_the_metadata_has_no_more(tmp_path, end):
    """Queues that the metadata no longer have leave neither files nor references behind (C-17)."""
    vhost = Vhost(tmp_path, end)
    other: SimQueue = vhost.declare(2)
    kept = vhost.kept(40, LARGE)
    other.publish([content(number, LARGE) for number in range(40)])
    vhost.write_all()
    del vhost.highest[2]
    vhost.end()
    assert vhost.disk.list("queues") in ([], ["100"])
    assert vhost.contents() == kept
    assert vhost.wanted_bytes == 40 * (len(kept[0]) + OVERHEAD)
    vhost.kill()


# -- the files of the message store


def test_c_18_rolled_and_the_new_file_is_empty_or_missing(tmp_path):
    """A data file that was begun and is empty or missing is accepted by the start, and what is written next is found
    (C-18).
    """
    seen = set()
    for way in ("kill", *range(6)):
        for operations in range(1, 6):
            vhost = Vhost(tmp_path / f"{way} {operations}", way)
            kept = vhost.kept(7, LARGE)
            assert vhost.disk.list("msg_store_persistent") == ["1.rdq", "state"]
            published = vhost.publish(2, LARGE)

            def write(vhost=vhost):
                vhost.make_all(SyncJob)
                vhost.write_all()

            assert vhost.dies_in(write, operations)
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


# -- stop and start


def mixed(vhost: Vhost) -> list[bytes]:
    """Messages of every kind, some acknowledged. Returns those that must be there after the next start."""
    kept = filled(vhost)
    vhost.publish(3, SMALL, persistent=False)
    vhost.queue.ack(vhost.taken(3))
    vhost.write_all()
    return kept[3:]


def test_c_21_between_two_steps_of_a_stop(tmp_path):
    """Between two steps of a stop there are recovery terms without a cleanly closed store, or no terms, so the start
    scans every index and counts every reference (C-21).
    """
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 10):
        kept = mixed(vhost)
        vhost.run(vhost.stop)
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("lost", ["terms", "state", "journal"])
def test_c_21_one_of_the_three_did_not_end(vhost, monkeypatch, lost):
    """If the terms of the queues, the state of the store or the end of the journal is missing, the end counts as
    unclean, and no message is lost (C-21, D-7).
    """
    kept = mixed(vhost)
    if lost == "terms":
        monkeypatch.setattr("warren.actors.node.vhost_supervisor.leave_vhost", lambda path, terms: None)
    elif lost == "journal":
        monkeypatch.setattr(type(vhost.journal.files), "close_flushed", lambda journal, kept: journal.close())
    vhost.stop()
    monkeypatch.undo()
    if lost == "state":
        vhost.disk.delete("msg_store_persistent/state")
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == kept


def test_c_22_during_recovery(tmp_path):
    """A start that is stopped at any operation changes nothing that the next start finds (C-22, QS-24)."""
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 10):
        kept = mixed(vhost)
        vhost.let_go()
        vhost.run(vhost.start)
        vhost.end()
        assert vhost.contents() == kept


def test_c_22_terms_count_once(vhost):
    """A start that has read the terms of a clean stop and then dies is an unclean end."""
    kept = mixed(vhost)
    vhost.stop()
    vhost.let_go()
    assert vhost.dies_in(vhost.start, 3)
    vhost.end()
    assert vhost.found() == [(number, got, True) for (number, _, _), got in zip(vhost.found(), kept, strict=True)]


# -- modes and levels


def test_c_23_becoming_lazy(tmp_path):
    """While a queue becomes lazy only places in memory change: after a crash every persistent message is there and no
    transient one (C-23).
    """
    for vhost in each_operation(tmp_path, ("kill", 0, 1), 5):
        kept = mixed(vhost)
        vhost.publish(20, LARGE, persistent=False)

        def become_lazy(vhost=vhost):
            vhost.queue.set_mode("lazy")
            vhost.write_all()

        vhost.run(become_lazy)
        vhost.end()
        assert vhost.contents() == kept


@pytest.mark.parametrize("levels", [(), (0,), (2,), (0, 2)], ids=str)
def test_c_24_one_level_flushed_and_another_not(tmp_path, end, levels):
    """Each priority level recovers by itself, so one may have been flushed and another not (C-24)."""
    vhost = Vhost(tmp_path, end, max_priority=2)
    low, high, middle = (
        vhost.kept(20, SMALL, priority=0),
        vhost.kept(20, LARGE, priority=2),
        vhost.kept(5, SMALL, priority=1),
    )
    for level in levels:
        vhost.queue.levels[level].segment_writer.flush(True)
    for _ in range(2):
        vhost.end()
        assert vhost.contents() == high + middle + low
    vhost.kill()


# -- LMDB


def test_c_25_commit_missing_for_bytes_in_a_file(vhost, monkeypatch):
    """If the store's last commit to its index is missing, the start finds the records that lie behind the place of the
    commit before (C-25).
    """
    kept = vhost.kept(3, LARGE)
    monkeypatch.setattr(LocationIndex, "commit", lambda index, changes: None)
    kept += vhost.kept(3, LARGE)
    monkeypatch.undo()
    vhost.end()
    assert vhost.contents() == kept


def test_c_26_power_loss(tmp_path):
    """After a power cut all that was synced is there. The store's index is from another boot, so it is built again,
    whatever became of it (C-26).
    """
    for seed in range(10):
        vhost = Vhost(tmp_path / f"{seed}", seed)
        kept = mixed(vhost)
        vhost.publish(5, LARGE)
        vhost.let_go()
        data = Path(vhost.path, "msg_store_persistent", "index", "data.mdb")
        data.write_bytes(Random(seed).randbytes(data.stat().st_size))
        vhost.start()
        assert vhost.contents() == kept
        vhost.let_go()
