"""QS-31: a kill or a power cut at any disk operation of a combination loses no message that has references."""

from __future__ import annotations

from random import Random

import pytest

from warren.store.bodies.combine import CombineJob
from warren.store.bodies.rdq_file import file_number
from warren.store.bodies.store_engine import StoreEngine
from warren.store.disk.faulty_disk import Crash, FaultyDisk
from warren.store.disk.real_disk import RealDisk

LIMIT = 600


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def body(number: int) -> bytes:
    return number.to_bytes(2, "big") * 35


def opened(disk, root, references=lambda: (), boot="1", clients=None) -> StoreEngine:
    store = StoreEngine(disk, "s", str(root), file_limit=LIMIT, boot_id=boot)
    store.recover(clients, references)
    store.register("q")
    return store


def sync(store) -> None:
    while (job := store.take_sync(everything=True)) is not None:
        job.run()
        store.finish_sync(job)


def collect(store) -> int:
    """Run garbage collection until none is due; return the number of its jobs."""
    jobs = 0
    while True:
        sync(store)
        if (job := store.take_gc()) is None:
            sync(store)
            if (job := store.take_gc()) is None:
                return jobs
        job.run()
        store.finish_gc(job)
        jobs += 1


def with_garbage(disk, root) -> tuple[StoreEngine, list[bytes]]:
    """A store of seven files with less than half of their bytes wanted; one file has no wanted message."""
    store = opened(disk, root)
    store.write("q", [(name(number), body(number)) for number in range(42)])
    sync(store)
    gone = [name(number) for number in range(42) if number % 3 or 18 <= number < 24]
    store.remove("q", gone)
    return store, [name(number) for number in range(42) if name(number) not in gone]


def holds(store, wanted) -> bool:
    job = store.read(wanted)
    job.run()
    store.finish_read(job)
    store.check()
    return job.messages == [body(int.from_bytes(message_id, "big")) for message_id in wanted]


def test_combining_gives_back_what_is_garbage(tmp_path):
    """The wanted messages move together in their order, and the other files are deleted."""
    disk = FaultyDisk()
    store, wanted = with_garbage(disk, tmp_path)
    before, _ = store.file_sizes
    assert collect(store) >= 2
    after, wanted_bytes = store.file_sizes
    assert after <= 2 * wanted_bytes < before
    assert holds(store, wanted)
    assert sum(file.size() for file in (disk.open(f"s/{n}") for n in disk.list("s") if file_number(n))) == after
    store.abandon()


def operations(tmp_path) -> int:
    disk = FaultyDisk()
    store, _ = with_garbage(disk, tmp_path / "counted")
    before = disk.operations
    collect(store)
    store.abandon()
    return disk.operations - before


@pytest.mark.parametrize("way", ["kill", "power cut"])
def test_killed_at_every_operation(tmp_path, way):
    """If a combination is stopped at any operation, every wanted message is there after the next start, and after
    another end directly behind it.
    """
    for at in range(1, operations(tmp_path) + 1):
        for seed in range(1 if way == "kill" else 8):
            disk = FaultyDisk()
            root = tmp_path / f"{at} {seed}"
            store, wanted = with_garbage(disk, root)
            disk.fail_after(at, Crash())
            with pytest.raises(Crash):
                collect(store)
            store.abandon()
            for life in range(2):
                disk.kill() if way == "kill" else disk.crash(Random(seed + life))
                store = opened(disk, root, lambda ids=wanted: [ids], boot="1" if way == "kill" else f"{life}")
                assert holds(store, wanted), f"{way} at operation {at}, seed {seed}, life {life}"
                assert not [file for file in disk.list("s") if file.endswith(".rdt")]
                if not life:
                    store.abandon()
            collect(store)
            assert holds(store, wanted)
            store.abandon()


@pytest.mark.parametrize("moment", range(14))
def test_what_happens_meanwhile(tmp_path, moment):
    """While files are locked, messages are removed and written again, and reads that had begun continue."""
    disk = FaultyDisk()
    store, wanted = with_garbage(disk, tmp_path)
    reading = store.read(list(wanted))
    for step in range(14):
        if step == moment:
            store.remove("q", [wanted.pop(0), wanted.pop(-1)])
            again = [name(number) for number in (1, 2, 40)]  # these were removed by `with_garbage`
            store.write("q", [(message_id, body(int.from_bytes(message_id, "big"))) for message_id in again])
            wanted += again
        if step % 2:
            sync(store)
        elif (job := store.take_gc()) is not None:
            job.run()
            assert holds(store, wanted)  # files have been replaced, and the index does not have the new places yet
            store.finish_gc(job)
        assert holds(store, wanted)
    reading.run()
    assert reading.messages == [body(int.from_bytes(message_id, "big")) for message_id in reading.ids]
    store.finish_read(reading)
    collect(store)
    assert holds(store, wanted)
    store.close()


def test_called_back_before_the_lock_is_copied(tmp_path):
    """A message whose reference was removed and came back before the files were locked is not lost: the commit that
    names the files has the reference (queue-and-store section 6.9, step 1).
    """
    disk = FaultyDisk()
    store, wanted = with_garbage(disk, tmp_path)
    sync(store)  # commits the removals
    store.write("q", [(name(1), body(1)), (name(2), body(2))])
    collect(store)
    assert holds(store, [*wanted, name(1), name(2)])
    store.abandon()


def test_full_disk_leaves_the_files_alone(tmp_path):
    """Without space for the combined file the two files stay as they were; with space they are combined."""
    disk = FaultyDisk()
    store, wanted = with_garbage(disk, tmp_path)
    failed = 0
    for _ in range(8):
        sync(store)
        job = store.take_gc()
        if job is None:
            continue
        if isinstance(job, CombineJob) and not failed:
            disk.limit = sum(disk.open(f"s/{file}").size() for file in disk.list("s")) + 100
        try:
            job.run()
        except OSError:
            failed += 1
            store.fail_gc(job)
            disk.limit = None
        else:
            store.finish_gc(job)
        assert holds(store, wanted)
    assert failed
    collect(store)
    assert holds(store, wanted)
    store.close()


def test_damaged_record_is_left_out_and_named(tmp_path):
    """D-19: a combination verifies the records it copies. A damaged message is removed, and its id reported."""
    disk = RealDisk(str(tmp_path / "disk"))
    store, wanted = with_garbage(disk, tmp_path / "index")
    sync(store)
    with open(tmp_path / "disk/s/1.rdq", "r+b") as file:
        file.seek(40)
        byte = file.read(1)
        file.seek(40)
        file.write(bytes([byte[0] ^ 1]))
    collect(store)
    assert store.damaged == [wanted[0]]
    assert not store.contains(wanted[0])
    assert holds(store, wanted[1:])
    store.close()
