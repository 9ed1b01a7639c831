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
    owner_lock.take()
    with owner_lock.work(), owner_lock.work():
        assert not owner_lock.end()
        with pytest.raises(OwnerEnded), owner_lock.work():
            pass
    assert owner_lock.end()
    OwnerLock(str(tmp_path / "lock")).take()


def test_the_next_owner_waits_for_the_last_job_of_the_one_before(tmp_path):
    former, following = OwnerLock(str(tmp_path / "lock")), OwnerLock(str(tmp_path / "lock"))
    former.take()
    has_taken = threading.Event()

    def take() -> None:
        following.take()
        has_taken.set()

    starter = threading.Thread(target=take)
    with former.work():
        with former.work():
            starter.start()
        assert not has_taken.wait(0.1)
    assert has_taken.wait(60)
    starter.join()
    with pytest.raises(OwnerEnded), former.work():
        pass


def test_an_owner_that_ends_while_it_waits_does_not_begin(tmp_path):
    """A store that crashes while it waits for a job of the one before does not recover. The one after it waits for that
    job, too.
    """
    former, ended, following = (OwnerLock(str(tmp_path / "lock")) for _ in range(3))
    former.take()
    errors: list[BaseException] = []
    has_taken = threading.Event()

    def take() -> None:
        try:
            ended.take()
        except OwnerEnded as error:
            errors.append(error)

    def take_next() -> None:
        following.take()
        has_taken.set()

    starters = threading.Thread(target=take), threading.Thread(target=take_next)
    with former.work():
        starters[0].start()
        while not former.is_ended:
            time.sleep(0.001)
        ended.end()
        starters[1].start()
        assert not has_taken.wait(0.1)
    assert has_taken.wait(60)
    for starter in starters:
        starter.join(60)
    assert errors
