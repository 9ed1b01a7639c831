"""Rules that a message store never breaks, checked after each step of writing, removing, combining and restarting
(QS-27, QS-28, QS-44, D-11).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from random import Random

import lmdb
import pytest

from warren.runtime.machine.linux_memory import ProcessMemory
from warren.store.bodies.combine import CombineJob, DeleteJob, UnlinkJob
from warren.store.bodies.location_index import LocationIndex
from warren.store.bodies.rdq_file import file_number
from warren.store.bodies.store_engine import StoreEngine
from warren.store.disk.faulty_disk import FaultyDisk

LIMIT = 400


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Life:
    """A store that is used at random: each `step` does one thing. `held` are the ids that have references."""

    def __init__(self, root: Path, seed: int, disk: FaultyDisk | None = None) -> None:
        self.root = root
        self.random = Random(seed)
        self.disk = disk or FaultyDisk()
        self.held: list[bytes] = []
        self.next = 0
        self.open()

    def open(self) -> None:
        self.store = StoreEngine(self.disk, "s", str(self.root), file_limit=LIMIT, boot_id="1")
        self.store.recover(None, lambda: [self.held])
        self.store.register("q")
        self.gc: CombineJob | DeleteJob | UnlinkJob | None = None

    def step(self) -> None:
        act = self.random.choice(
            (self.write, self.remove, self.sync, self.sync, self.collect, self.collect, self.collect)
        )
        act()

    def write(self) -> None:
        ids = [name(self.next + at) for at in range(self.random.randint(1, 6))]
        self.next += len(ids)
        self.store.write("q", [(message_id, message_id * self.random.randint(0, 5)) for message_id in ids])
        self.held += ids

    def remove(self) -> None:
        gone = [message_id for message_id in self.held if self.random.random() < 0.4]
        self.store.remove("q", gone)
        self.held = [message_id for message_id in self.held if message_id not in set(gone)]

    def sync(self) -> None:
        job = self.store.take_sync(everything=True)
        if job is not None:
            job.run()
            self.store.finish_sync(job)
        self.store.take_reports()

    def collect(self) -> None:
        """Take a job and run it or hand it back, with other steps in between."""
        if self.gc is None:
            self.gc = self.store.take_gc()
        else:
            self.gc.run()
            self.store.finish_gc(self.gc)
            self.gc = None

    def kill(self) -> None:
        self.store.abandon()
        self.disk.kill()
        self.open()


@pytest.fixture(params=range(3))
def life(request, tmp_path):
    life = Life(tmp_path, request.param)
    yield life
    life.store.abandon()


def test_qs_27_the_current_file_is_left_alone(life):
    """QS-27: the files form one chain by number; the last is never locked, combined or deleted."""
    collected = 0
    for _ in range(600):
        life.step()
        rows = life.store._summary.rows
        numbers = sorted(rows)
        assert [rows[number].left for number in numbers] == [None, *numbers[:-1]]
        assert [rows[number].right for number in numbers] == [*numbers[1:], None]
        current = life.store._summary.current
        assert current == numbers[-1] and not rows[current].locked
        if life.gc is not None:
            assert current not in life.gc.files
            collected += 1
    assert collected > 50


def test_qs_28_what_was_written_is_not_written_over(life):
    """QS-28: a file only grows. Only a start cuts bytes off, behind the last record that has references."""
    seen: dict[int, tuple[object, bytes]] = {}

    def look(is_start: bool) -> None:
        for path, content in life.disk._names.items():
            if file_number(path.removeprefix("s/")) is None:
                continue
            _, before = seen.get(id(content), (content, b""))
            now = bytes(content.data)
            assert now.startswith(before) or is_start and before.startswith(now), path
            seen[id(content)] = content, now  # keeps the object alive, so that no other gets its id

    for step in range(600):
        life.step()
        look(False)
        if step % 100 == 99:
            life.kill()
            look(True)
    assert len(seen) > 20


class WatchedEnvironment:
    """An LMDB environment that records which threads have a write transaction open, and counts the transactions."""

    writing: set[int] = set()
    begun = 0

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment

    def begin(self, *arguments, **options):
        transaction = self._environment.begin(*arguments, **options)
        return self._watched(transaction) if options.get("write") else transaction

    @contextmanager
    def _watched(self, transaction):
        WatchedEnvironment.begun += 1
        with transaction:
            self.writing.add(threading.get_ident())
            try:
                yield transaction
            finally:
                self.writing.discard(threading.get_ident())

    def __getattr__(self, attribute):
        return getattr(self._environment, attribute)


class WatchedDisk(FaultyDisk):
    """A disk that fails the test if a thread uses it while it has an LMDB write transaction open."""

    watched = 0

    def step(self, kind: str) -> None:
        assert threading.get_ident() not in WatchedEnvironment.writing, f"{kind} within a write transaction"
        self.watched += 1
        super().step(kind)


def test_qs_44_no_write_transaction_is_held_across_the_disk(tmp_path, monkeypatch):
    """QS-44: a write transaction ends in the method that began it, and no disk operation happens in between."""
    real = LocationIndex.__init__

    def opened(index, *arguments, **options):
        real(index, *arguments, **options)
        index._env = WatchedEnvironment(index._env)

    monkeypatch.setattr(LocationIndex, "__init__", opened)
    before = WatchedEnvironment.begun
    disk = WatchedDisk()
    life = Life(tmp_path, 1, disk)
    for step in range(400):
        life.step()
        assert not WatchedEnvironment.writing
        if step % 50 == 49:
            life.kill()
            assert not WatchedEnvironment.writing
    life.store.abandon()
    assert WatchedEnvironment.begun - before > 100 and disk.watched > 100


def test_memory_in_use_with_a_large_lmdb_cache(tmp_path):
    """D-11: scanning a large index makes many of its pages resident.

    They do not count, since the kernel can drop them.
    """
    index = LocationIndex(str(tmp_path))
    count = 200_000
    for start in range(0, count, 20_000):
        index.fill(1, [(name(number), number * 100, 100) for number in range(start, start + 20_000)])
    index.close()
    index = LocationIndex(str(tmp_path), is_read_only=True)
    own = ProcessMemory()
    try:
        anonymous, resident = own.anonymous(), file_backed()
        assert sum(1 for _ in index.all_located()) == count
        assert file_backed() - resident > 10 << 20
        assert own.anonymous() - anonymous < 4 << 20
    finally:
        own.close()
        index.close()


def file_backed() -> int:
    """Resident bytes of mapped files."""
    status = Path("/proc/self/status").read_text()
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(("RssFile", "RssShmem")))
