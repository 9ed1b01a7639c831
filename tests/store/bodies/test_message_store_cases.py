"""Cases of RabbitMQ's backing_queue_SUITE, msg_store_SUITE and per_vhost_msg_store_SUITE about the message store, and
of the crash table.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from random import Random

import pytest

from warren.store.bodies.client_reports import StoreReport
from warren.store.bodies.combine import StoreBroken
from warren.store.bodies.location_index import LocationIndex
from warren.store.bodies.store_engine import StoreEngine
from warren.store.bodies.store_recovery import read_state
from warren.store.disk.faulty_disk import Crash, FaultyDisk
from warren.store.disk.real_disk import RealDisk


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


A, B = name(1), name(2)


class Vhost:
    """A store that is started again and again on one disk."""

    def __init__(self, tmp_path, disk=None, **options):
        self.disk = disk or FaultyDisk()
        self.index = str(tmp_path / "index")
        self.options = options
        self.boot = 0

    def start(self, references=(), clients=None, register=("q", "p")):
        self.store = StoreEngine(self.disk, "s", self.index, boot_id=f"{self.boot}", **self.options)
        self.is_trusted = self.store.recover(clients, lambda: [list(references)])
        for client in register:
            self.store.register(client)
        return self.store

    def kill(self):
        self.store.abandon()
        self.disk.kill()

    def cut_power(self, seed=0):
        self.store.abandon()
        self.disk.crash(Random(seed))
        self.boot += 1

    def stop(self):
        for client in self.store.clients:
            self.store.detach(client)
        self.store.close()


@pytest.fixture
def vhost(tmp_path):
    return Vhost(tmp_path)


@pytest.fixture
def store(vhost):
    return vhost.start()


def sync(store):
    while (job := store.take_sync(everything=True)) is not None:
        job.run()
        store.finish_sync(job)


def collect(store):
    idle = 0
    while idle < 2:
        sync(store)
        job = store.take_gc()
        if job is None:
            idle += 1
        else:
            idle = 0
            job.run()
            store.finish_gc(job)


def read(store, *ids):
    job = store.read(ids)
    job.run()
    store.finish_read(job)
    return job.messages


# -- msg_store


@pytest.mark.parametrize(
    ("operations", "is_there", "reports"),
    [
        ("W", True, ["written"]),
        ("WR", False, ["ignored"]),
        ("WRW", True, ["ignored", "written"]),
        ("WRWR", False, ["ignored", "ignored"]),
    ],
)
def test_msg_store_confirms(store, operations, is_there, reports):
    """Each write is reported once, whether it reached the disk or was removed before."""
    told = run(store, operations)
    assert told == [StoreReport("q", kind, [A]) for kind in reports] or told == [StoreReport("q", "ignored", [A, A])]
    assert store.contains(A) is is_there
    assert store.file_sizes[0] == (len(b"body") + 30 if is_there else 0)


@pytest.mark.parametrize(
    ("operations", "is_there", "reports"),
    [("RW", True, ["written"]), ("RWR", False, ["written"]), ("RWRW", True, ["written"])],
)
def test_msg_store_confirms_of_a_stored_message(store, operations, is_there, reports):
    """A message that is removed and written again is the same record, which is on disk already (QS-29)."""
    run(store, "W")
    before = store.file_sizes[0]
    told = run(store, operations)
    assert {report.kind for report in told} == set(reports)
    assert sum(len(report.ids) for report in told) == operations.count("W")
    assert store.contains(A) is is_there
    assert store.file_sizes[0] == before
    assert read(store, A) == [b"body" if is_there else None]


def run(store, operations):
    for operation in operations:
        if operation == "W":
            store.write("q", [(A, b"body")])
        else:
            store.remove("q", [A])
    sync(store)
    store.check()
    return store.take_reports()


@pytest.mark.parametrize("removed", ["in flight", "before", "after"])
def test_msg_store_removed_around_its_sync(store, removed):
    """A write gets exactly one report, even if its message is removed before, during or after the sync (QS-30)."""
    store.write("q", [(A, b"body")])
    if removed == "before":
        store.remove("q", [A])
    job = store.take_sync()
    if removed == "in flight":
        store.remove("q", [A])
    if job is not None:
        job.run()
        store.finish_sync(job)
    reports = store.take_reports()
    store.remove("q", [A])
    assert [report.kind for report in reports + store.take_reports()] == [
        "written" if removed == "after" else "ignored"
    ]
    store.check()


def test_msg_store_never_idle(store):
    """A message that is written during a sync is confirmed by the next one, however often that repeats."""
    store.write("q", [(name(0), b"0")])
    job = store.take_sync()
    for number in range(1, 20):
        store.write("q", [(name(number), b"0")])
        job.run()
        store.finish_sync(job)
        assert store.take_reports() == [StoreReport("q", "written", [name(number - 1)])]
        job = store.take_sync()


def test_msg_store_takes_what_came_before_the_mark(store):
    """A sync of marked messages leaves later ones to the next sync, which reports them (QS-30)."""
    C = name(3)
    store.write("q", [(A, b"body")])
    assert store.take_marked() is None, "nothing came before a mark"
    store.waiting.mark()
    store.write("q", [(B, b"younger"), (C, b"youngest")])
    store.write("p", [(A, b"body"), (B, b"younger")])
    job = store.take_marked()
    assert [message_id for part in job.parts for message_id, _ in part.messages] == [A]
    assert store.take_marked() is None, "one sync at a time"
    store.remove("q", [C])
    job.run()
    store.finish_sync(job)
    reports = {(report.client, report.kind, *report.ids) for report in store.take_reports()}
    assert reports == {("q", "ignored", C), ("q", "written", A), ("p", "written", A)}
    assert read(store, A, B) == [b"body", b"younger"]
    assert store.waiting.size == len(b"younger")
    sync(store)
    assert sorted(store.take_reports()) == [StoreReport("p", "written", [B]), StoreReport("q", "written", [B])]
    assert store.waiting.size == 0
    store.check()


def test_msg_store_reference_counts_across_two_clients(store):
    """A message of two queues is stored once, stays until both have removed it, and is reported to each."""
    store.write("q", [(A, b"body")])
    store.write("p", [(A, b"body")])
    sync(store)
    assert sorted(store.take_reports()) == [StoreReport("p", "written", [A]), StoreReport("q", "written", [A])]
    assert store.file_sizes == (34, 34)
    store.remove("q", [A])
    assert read(store, A) == [b"body"]
    store.remove("p", [A])
    assert read(store, A) == [None]
    assert store.file_sizes == (34, 0)


def test_msg_store_half_restart(vhost):
    """A start keeps exactly the ids that were counted."""
    store = vhost.start()
    ids = [name(number) for number in range(100)]
    store.write("q", [(message_id, message_id * 9) for message_id in ids])
    sync(store)
    vhost.kill()
    store = vhost.start(ids[::2] + ids[:10:2])
    assert [store.contains(message_id) for message_id in ids] == [True, False] * 50
    store.check()
    store.remove("q", ids[::2])
    assert [message_id for message_id in ids if store.contains(message_id)] == ids[:10:2]  # these were counted twice


def test_msg_store_write_read_without_sync(store):
    """A message may be read before it is synced."""
    store.write("q", [(A, b"body"), (B, b"")])
    assert read(store, A, B, name(3)) == [b"body", b"", None]


def test_msg_store_hundred_files(tmp_path):
    """A hundred files are written, read, and removed by thirds from the young end.

    The rest stays readable; in the end none is left.
    """
    vhost = Vhost(tmp_path, RealDisk(str(tmp_path / "disk")), file_limit=65536)
    store = vhost.start()
    ids = [name(number) for number in range(1000)]
    store.write("q", [(message_id, message_id * 409) for message_id in ids])
    collect(store)
    assert len([file for file in vhost.disk.list("s") if file.endswith(".rdq")]) >= 100
    for third in (2, 1, 0):
        going = ids[third::3]
        store.remove("q", reversed(going))
        collect(store)
        left = [message_id for message_id in ids if store.contains(message_id)]
        assert len(left) == 1000 - sum(len(ids[gone::3]) for gone in range(third, 3))
        assert read(store, *left) == [message_id * 409 for message_id in left]
        store.check()
        assert store.file_sizes[0] <= 2.2 * store.file_sizes[1] + 3 * 65536
    assert len([file for file in vhost.disk.list("s") if file.endswith(".rdq")]) == 1
    vhost.stop()


def test_msg_store_forget_with_writes_in_flight(store):
    """A forgotten client gets no reports, and its later writes do not count."""
    store.write("q", [(A, b"body")])
    job = store.take_sync()
    store.write("q", [(B, b"body")])
    store.remove("q", [A, B])
    store.forget("q")
    store.write("q", [(name(3), b"body")])
    job.run()
    store.finish_sync(job)
    sync(store)
    assert {report.kind for report in store.take_reports()} <= {"ignored"}
    assert not any(map(store.contains, (A, B, name(3))))
    store.check()


def test_a_body_removed_while_it_is_written_leaves_memory_with_the_sync(store):
    """If it left only when the next file begins, up to 16 MB of bodies that nobody can read would stay in memory."""
    body = b"body" * 1000
    references = sys.getrefcount(body)
    store.write("q", [(A, body)])
    job = store.take_sync()
    store.remove("q", [A])
    job.run()
    store.finish_sync(job)
    del job
    assert sys.getrefcount(body) == references


def test_a_body_that_is_wanted_again_while_it_is_written_can_be_read(store):
    store.write("q", [(A, b"body")])
    job = store.take_sync()
    store.remove("q", [A])
    store.write("p", [(A, b"body")])
    job.run()
    store.finish_sync(job)
    assert read(store, A) == [b"body"]


def test_bq_variable_queue_delete_msg_store_files_callback(tmp_path):
    """A file that is being read may be deleted at once, and stays readable for its reader."""
    vhost = Vhost(tmp_path, RealDisk(str(tmp_path / "disk")), file_limit=4 << 20)
    store = vhost.start()
    ids = [name(number) for number in range(30)]
    store.write("q", [(message_id, message_id * 65536) for message_id in ids])
    sync(store)
    reading = store.read(ids[:1])
    store.remove("q", ids)
    collect(store)
    assert vhost.disk.list("s") == ["8.rdq", "state"]
    reading.run()
    store.finish_read(reading)
    assert reading.messages == [ids[0] * 65536]
    vhost.stop()


# -- the vhosts' directories


def test_single_vhost_storage_delete_is_safe(tmp_path):
    """A store that is wiped while it is down starts empty; that of the other vhost keeps all messages."""
    disk = RealDisk(str(tmp_path / "disk"))
    ids = [name(number) for number in range(200)]
    for vhost in ("one", "two"):
        store = StoreEngine(disk, vhost, str(tmp_path / vhost))
        store.recover(None, lambda: ())
        store.register("q")
        store.write("q", [(message_id, message_id) for message_id in ids])
        store.detach("q")
        store.close()
    disk.remove_dir("one")
    shutil.rmtree(tmp_path / "one")
    for vhost, is_there in (("one", False), ("two", True)):
        store = StoreEngine(disk, vhost, str(tmp_path / vhost))
        assert store.recover(["q"], lambda: [ids]) is is_there
        assert [store.contains(message_id) for message_id in ids] == [is_there] * 200
        store.abandon()


# -- ends


def test_qs_42_index_deleted_while_down(vhost):
    """A missing index loses no message, even after a clean stop: the start scans the files."""
    store = vhost.start()
    store.write("q", [(name(number), name(number) * 5) for number in range(50)])
    vhost.stop()
    shutil.rmtree(vhost.index)
    store = vhost.start([name(number) for number in range(50)], clients=["p", "q"])
    assert not vhost.is_trusted
    assert read(store, *map(name, range(50))) == [name(number) * 5 for number in range(50)]


@pytest.mark.parametrize("clients", [None, ["q"], ["p", "q", "r"]])
def test_other_clients_than_the_stores(vhost, clients):
    """References are counted again if the clients of the virtual host are not those that the store's state names
    (C-21).
    """
    vhost.start()
    vhost.stop()
    vhost.start(clients=clients)
    assert not vhost.is_trusted


def test_queue_killed_then_clean_restart(vhost):
    """Queue-and-store section 10.1: the references of a crashed queue stay counted, so the next start must recount."""
    store = vhost.start()
    store.write("q", [(A, b"body")])
    sync(store)
    store.lost("q")
    store.register("q again")
    assert store.contains(A)
    vhost.stop()
    assert read_state(vhost.disk, "s").is_clean is False
    store = vhost.start(clients=["p", "q again"])
    assert not vhost.is_trusted
    assert not store.contains(A)
    assert store.file_sizes == (0, 0)


def test_after_a_kill_only_what_is_new_is_scanned(vhost, monkeypatch):
    """Queue-and-store section 11.4: after a kill the index of the last commit is used; after a power cut it is not
    even opened.
    """
    store = vhost.start()
    store.write("q", [(A, b"a" * 1000)])
    sync(store)
    vhost.kill()
    scanned = []
    fill = "warren.store.bodies.location_index.LocationIndex.fill"
    monkeypatch.setattr(fill, lambda index, file, found: scanned.extend(found))
    store = vhost.start([A])
    assert scanned == [] and store.contains(A)
    vhost.cut_power()
    with open(os.path.join(vhost.index, "data.mdb"), "wb") as file:
        file.write(b"damage" * 10_000)
    monkeypatch.undo()
    store = vhost.start([A])
    assert read(store, A) == [b"a" * 1000]


def test_c_2_bytes_written_and_not_in_the_index(vhost):
    """After a kill between the sync of a file and the commit of the index, a message that has a reference is there, and
    one that has none is garbage (C-2, C-25).
    """
    for references in ([A, B], [A]):
        vhost.index += "x"
        store = vhost.start([])
        store.write("q", [(A, b"body"), (B, b"other")])
        job = store.take_sync()
        for part in job.parts:
            job._write(part)
        vhost.kill()
        store = vhost.start(references)
        assert read(store, A, B) == [b"body", b"other" if B in references else None]
        vhost.kill()


@pytest.mark.parametrize("seed", range(20))
def test_c_19_torn_tail_is_cut(vhost, seed):
    """A record that was being appended at a power cut is whole or gone.

    The next one goes behind the last that has references.
    """
    store = vhost.start()
    store.write("q", [(A, b"body")])
    sync(store)
    store.write("q", [(name(number), b"more" * 100) for number in range(10, 20)])
    vhost.disk.fail_after(2, Crash())  # the append, then the sync
    with pytest.raises(Crash):
        store.take_sync().run()
    vhost.cut_power(seed)
    store = vhost.start([A, *map(name, range(10, 20))])
    assert read(store, A) == [b"body"]
    assert set(read(store, *map(name, range(10, 20)))) <= {None, b"more" * 100}
    store.write("q", [(B, b"next")])
    sync(store)
    assert len({file for file in vhost.disk.list("s") if file.endswith(".rdq")}) == 1
    vhost.cut_power(seed)
    store = vhost.start([A, B])
    assert read(store, A, B) == [b"body", b"next"]
    store.check()


def test_flipped_byte_in_a_body(tmp_path):
    """A message whose body is damaged is never delivered; it is removed, and its id is reported (D-19)."""
    vhost = Vhost(tmp_path, RealDisk(str(tmp_path / "disk")))
    store = vhost.start()
    store.write("q", [(A, b"body"), (B, b"other")])
    vhost.stop()
    with open(tmp_path / "disk/s/1.rdq", "r+b") as file:
        file.seek(30)
        file.write(b"X")
    store = vhost.start(clients=["p", "q"])
    assert read(store, A, B) == [None, b"other"]
    assert store.damaged == [A]
    assert not store.contains(A)
    store.remove("q", [A])  # the queue does not know yet that it is lost
    store.check()
    vhost.stop()


@pytest.mark.parametrize("boot", ["same", "other"])
@pytest.mark.parametrize("at", [0, 4, 6, 7, 10, 24, 26, 40])
def test_damage_costs_its_record(tmp_path, caplog, boot, at):
    """Whichever byte of a record is damaged, even of its size, each start finds the records behind it, and new records
    go behind them all.
    """
    vhost = Vhost(tmp_path, RealDisk(str(tmp_path / "disk")))
    vhost.start()
    ids = [name(number) for number in range(60)]
    vhost.store.write("q", [(message_id, message_id * 5) for message_id in ids])
    sync(vhost.store)
    vhost.store.abandon()
    with open(tmp_path / "disk/s/1.rdq", "r+b") as file:
        file.seek(2 * 110 + at)
        old = file.read(1)
        file.seek(2 * 110 + at)
        file.write(bytes([old[0] ^ 0x15]))
    whole = ids[:2] + ids[3:]
    for life in range(3):
        vhost.boot += boot == "other"
        store = vhost.start([*ids, B] if life else ids)
        assert read(store, *whole) == [message_id * 5 for message_id in whole]
        assert read(store, ids[2]) == [None]
        if life == 0:
            store.write("q", [(b"n" * 16, b"new")])
            sync(store)
        store.check()
        store.abandon()
    said = [record.getMessage() for record in caplog.records if "is damaged" in record.getMessage()]
    assert len(said) == (3 if boot == "other" else 0)
    assert all("s/1.rdq is damaged: bytes 220 to 329; behind that 5" in line for line in said)


def test_an_index_that_leads_nowhere_is_made_anew(vhost, caplog):
    """If the rows of the index, which have no checksums, contradict the files, the index is made anew from
    the files.
    """
    store = vhost.start()
    store.write("q", [(A, b"body"), (B, b"other")])
    sync(store)
    vhost.kill()
    index = LocationIndex(vhost.index)
    index.fill(7, [(name(9), 5000, 60)])
    index.close()
    store = vhost.start([A, B, name(9)])
    assert read(store, A, B) == [b"body", b"other"]
    assert "is located outside of every file" in caplog.text


def test_a_store_without_bodies_reads_no_references(vhost):
    """A store without bodies does not have the references counted at a start: reading the index of a queue of a million
    embedded messages takes a second.
    """
    vhost.start()
    vhost.kill()
    counted = []
    for body in (b"body", b""):
        store = StoreEngine(vhost.disk, "s", vhost.index, boot_id="0")
        store.recover(None, lambda body=body: counted.append(bool(body)) or [])
        if body:
            store.register("q")
            store.write("q", [(A, body)])
            sync(store)
        store.abandon()
        vhost.disk.kill()
    assert counted == [False]


def test_qs_43_nothing_is_deleted_before_the_recount_is_done(vhost):
    """QS-43: a crash while references are counted leaves every file in place."""
    vhost.options["file_limit"] = 100
    store = vhost.start()
    ids = [name(number) for number in range(20)]
    store.write("q", [(message_id, b"x" * 50) for message_id in ids])
    sync(store)
    vhost.kill()
    before = [file for file in vhost.disk.list("s") if file.endswith(".rdq")]

    def interrupted():
        yield ids[:5]
        raise Crash

    store = StoreEngine(vhost.disk, "s", vhost.index, boot_id="0", file_limit=100)
    with pytest.raises(Crash):
        store.recover(None, interrupted)
    store.abandon()
    assert [file for file in vhost.disk.list("s") if file.endswith(".rdq")] == before
    store = vhost.start(ids)
    assert all(map(store.contains, ids))


# -- errors of the disk


def test_full_disk_confirms_nothing_until_there_is_room(store, vhost):
    """QS-35: the job that failed on a full disk succeeds later, and each write is reported once."""
    vhost.disk.limit = 500
    store.write("q", [(A, b"x" * 1000)])
    job = store.take_sync()
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            job.run()
        assert store.take_reports() == []
        assert store.take_sync() is None
    vhost.disk.limit = None
    job.run()
    store.finish_sync(job)
    assert store.take_reports() == [StoreReport("q", "written", [A])]
    vhost.cut_power()
    assert read(vhost.start([A]), A) == [b"x" * 1000]


def test_failed_sync_ends_the_store(store, vhost):
    """A failed sync ends the store: the kernel may have dropped the pages, so a second sync would prove nothing."""
    store.write("q", [(A, b"body")])
    job = store.take_sync()
    vhost.disk.fail_after(3, OSError(errno.EIO, "injected"))
    with pytest.raises(StoreBroken):
        job.run()


def test_transient_store_is_empty_at_every_start(tmp_path):
    """The transient store syncs nothing, reports what was written, and starts empty after every kind of end."""
    disk = FaultyDisk()
    for _ in range(3):
        store = StoreEngine(disk, "t", str(tmp_path / "t"), is_durable=False)
        assert not store.recover(["q"], lambda: ())
        assert store.file_sizes == (0, 0)
        store.register("q")
        before = disk.syncs
        store.write("q", [(A, b"body")])
        sync(store)
        assert store.take_reports() == [StoreReport("q", "written", [A])]
        assert disk.syncs == before
        store.detach("q")
        store.close()


@pytest.mark.parametrize("is_durable", [True, False])
def test_index_beside_the_data_files(tmp_path, is_durable):
    """A store may have its data files and its index in the same directory."""
    disk = RealDisk(str(tmp_path))
    for life in range(3):
        store = StoreEngine(disk, "s", str(tmp_path / "s" / "index"), is_durable)
        assert store.recover(["q"], lambda: ()) is (is_durable and life > 0)
        assert store.contains(A) is (is_durable and life > 0)
        store.register("q")
        if not store.contains(A):
            store.write("q", [(A, b"body")])
        sync(store)
        store.detach("q")
        store.close()


def test_removing_a_queues_messages_in_portions(tmp_path):
    """A purge in several calls removes messages that are being written, in flight and on disk; messages of other
    queues, and those that it must keep, stay.
    """
    engine = StoreEngine(FaultyDisk(), "s", str(tmp_path / "index"))
    engine.recover(None, lambda: ())
    engine.register("q")
    ids = [queue.to_bytes(8, "big") + number.to_bytes(8, "big") for queue in (1, 2, 3) for number in range(40)]
    engine.write("q", [(message_id, b"body") for message_id in ids[0::3]])
    job = engine.take_sync()
    job.run()
    engine.finish_sync(job)
    engine.write("q", [(message_id, b"body") for message_id in ids[1::3]])
    job = engine.take_sync()
    job.run()
    engine.write("q", [(message_id, b"body") for message_id in ids[2::3]])
    first, last = ids[40], ids[79]
    keep = {ids[45], ids[46], ids[47]}
    at, portions = first, 0
    while at is not None:
        at = engine.remove_between("q", at, last, keep, 10)
        portions += 1
    assert portions > 1
    assert [message_id for message_id in ids if engine.contains(message_id)] == [*ids[:40], *sorted(keep), *ids[80:]]
    engine.finish_sync(job)
    engine.check()
    engine.abandon()
