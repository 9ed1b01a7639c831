"""A job of a process may still run when that process has ended: the next owner of the store waits for it, and a job
that had not begun does nothing.
"""

from __future__ import annotations

import threading
import time

import pytest

from warren.store.bodies.owner_lock import OwnerEnded, OwnerLock
from warren.store.bodies.store_engine import StoreEngine
from warren.store.disk.real_disk import RealDisk

A, B = bytes(16), bytes(15) + b"\x01"


def opened(tmp_path, references=()) -> StoreEngine:
    store = StoreEngine(RealDisk(str(tmp_path)), "s", str(tmp_path / "s" / "index"))
    store.recover(None, lambda: [list(references)])
    store.register("q")
    return store


def test_job_that_has_not_begun_does_nothing(tmp_path):
    """A job that begins after its owner crashed and the next one has scanned the files does nothing."""
    store = opened(tmp_path)
    store.write("q", [(A, b"never confirmed")])
    job = store.take_sync()
    store.abandon()
    store = opened(tmp_path)
    with pytest.raises(OwnerEnded):
        job.run()
    assert not (tmp_path / "s" / "1.rdq").exists()
    store.close()


def test_start_waits_for_a_job_under_way(tmp_path):
    """The next owner waits for a job that is under way, and sees everything it did."""
    store = opened(tmp_path)
    store.write("q", [(A, b"body")])
    job = store.take_sync()
    is_writing, may_write = threading.Event(), threading.Event()
    write = job._write

    def slowly(part):
        is_writing.set()
        may_write.wait(60)
        write(part)

    job._write = slowly
    worker = threading.Thread(target=job.run)
    worker.start()
    is_writing.wait(60)
    store.abandon()
    found = []
    starter = threading.Thread(target=lambda: found.append(opened(tmp_path, [A])))
    starter.start()
    time.sleep(0.05)
    assert not found
    may_write.set()
    worker.join(60)
    starter.join(60)
    reading = found[0].read([A])
    reading.run()
    assert reading.messages == [b"body"]
    found[0].finish_read(reading)
    found[0].close()


def test_jobs_work_beside_each_other(tmp_path):
    """Two jobs of one owner run at the same time, so a sync does not wait for garbage collection."""
    owner_lock = OwnerLock(str(tmp_path / "lock"))
    with owner_lock.work(), owner_lock.work():
        assert not owner_lock.end()
        with pytest.raises(OwnerEnded), owner_lock.work():
            pass
    assert owner_lock.end()
    OwnerLock(str(tmp_path / "lock")).wait()
