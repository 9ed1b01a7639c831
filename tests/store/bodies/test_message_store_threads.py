"""The engine on a real disk as its process drives it: syncs, combinations and reads in threads while messages come
and go.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from random import Random

import pytest

from warren.store.bodies.store_engine import StoreEngine
from warren.store.disk.real_disk import RealDisk

STEPS = 2000


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def body(number: int) -> bytes:
    return number.to_bytes(4, "big") * (number % 900)


class Driver:
    """`held` are the numbers of the messages with a reference."""

    def __init__(self, tmp_path, seed):
        self.random = Random(seed)
        self.path = tmp_path
        self.pool = ThreadPoolExecutor(3)
        self.held: list[int] = []
        self.next = 0
        self.reads = self.moved = 0
        self.start(lambda: ())

    def start(self, references, clients=None):
        self.store = StoreEngine(RealDisk(str(self.path)), "s", str(self.path / "index"), file_limit=32768)
        is_trusted = self.store.recover(clients, references)
        self.store.register("q")
        self.sync = self.gc = None
        self.reading: list[tuple[object, Future]] = []
        return is_trusted

    def step(self):
        choice = self.random.random()
        if choice < 0.4:
            numbers = range(self.next, self.next + self.random.randint(1, 8))
            self.next = numbers.stop
            self.store.write("q", [(name(number), body(number)) for number in numbers])
            self.held.extend(numbers)
        elif choice < 0.75 and len(self.held) > 300 or len(self.held) > 600:
            # Mostly the oldest messages, so that files become empty, and some others, so that files are combined.
            ids = self.held[:3] + self.random.sample(self.held[3:], 3)
            self.store.remove("q", map(name, ids))
            self.held = [number for number in self.held if number not in ids]
        elif self.held:
            numbers = self.random.sample(self.held, min(8, len(self.held)))
            job = self.store.read([name(number) for number in numbers])
            self.reading.append((job, self.pool.submit(job.run)))
        self.finish()

    def finish(self, wait=False):
        for job, future in self.reading[:]:
            if wait or future.done():
                future.result()
                assert job.messages == [body(int.from_bytes(message_id, "big")) for message_id in job.ids]
                self.store.finish_read(job)
                self.reading.remove((job, future))
                self.reads += 1
        if self.sync and (wait or self.sync[1].done()):
            self.sync[1].result()
            self.store.finish_sync(self.sync[0])
            self.sync = None
        if self.gc and (wait or self.gc[1].done()):
            self.gc[1].result()
            self.store.finish_gc(self.gc[0])
            self.moved += len(getattr(self.gc[0], "moves", ()))
            self.gc = None
        if wait:
            return
        if self.sync is None and (job := self.store.take_sync()) is not None:
            self.sync = job, self.pool.submit(job.run)
        if self.gc is None and (job := self.store.take_gc()) is not None:
            self.gc = job, self.pool.submit(job.run)


@pytest.mark.parametrize("seed", range(2))
def test_threads(tmp_path, seed):
    """A message with references can be read at any moment, sums agree, and all are there after a kill and after a
    clean stop.
    """
    driver = Driver(tmp_path, seed)
    for step in range(STEPS):
        driver.step()
        if not step % 20:
            driver.finish(wait=True)  # however slow the disk is, no backlog builds up and garbage is collected
        if step == STEPS // 2:
            driver.finish(wait=True)
            for job in iter(driver.store.take_sync, None):
                job.run()
                driver.store.finish_sync(job)
            driver.store.abandon()
            assert not driver.start(lambda: [list(map(name, driver.held))])
    driver.finish(wait=True)
    driver.store.check()
    assert driver.reads and driver.moved
    driver.store.detach("q")
    driver.store.close()
    assert driver.start(lambda: (), clients=["q"])
    job = driver.store.read([name(number) for number in driver.held])
    job.run()
    assert job.messages == [body(number) for number in driver.held]
    driver.store.finish_read(job)
    driver.store.abandon()
    driver.pool.shutdown()
