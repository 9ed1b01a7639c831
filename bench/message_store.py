"""Measures the message store with bodies of 16 KB: `python -m warren.bench.message_store [directory]`.

Groups of 64 messages are written and synced, first in one thread, then with the syncs in another. Then they are read
back from the files, seven of eight are removed, and the files are combined.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ..store.bodies.store_engine import StoreEngine
from ..store.disk.real_disk import RealDisk

BODY = bytes(range(256)) * 64
TOTAL = 8_000
GROUP = 64
READ_TOGETHER = 64
#: The writer waits for a sync while the store has this many bytes that are not written yet.
ENGINE_BYTES = 4 << 20


def ids(start: int, stop: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(start, stop)]


def opened(root: str) -> StoreEngine:
    store = StoreEngine(RealDisk(root), "store", f"{root}/index")
    store.recover(None, lambda: ())
    store.register("bench")
    return store


def write_in_one_thread(store: StoreEngine) -> None:
    for first in range(0, TOTAL, GROUP):
        store.write("bench", [(message_id, BODY) for message_id in ids(first, first + GROUP)])
        job = store.take_sync()
        assert job is not None
        job.run()
        store.finish_sync(job)


def write_beside(store: StoreEngine) -> None:
    first = 0
    with ThreadPoolExecutor(1) as pool:
        while first < TOTAL or store.is_urgent:
            job = store.take_sync()
            running = pool.submit(job.run) if job is not None else None
            while first < TOTAL and store.waiting.size < ENGINE_BYTES and not (running and running.done()):
                store.write("bench", [(message_id, BODY) for message_id in ids(first, first + GROUP)])
                first += GROUP
            if running is not None and job is not None:
                running.result()
                store.finish_sync(job)


def read(store: StoreEngine) -> None:
    for first in range(0, TOTAL, READ_TOGETHER):
        job = store.read(ids(first, first + READ_TOGETHER))
        job.run()
        store.finish_read(job)
        assert job.messages[0] == BODY


def remove(store: StoreEngine) -> None:
    store.remove("bench", [message_id for message_id in ids(0, TOTAL) if message_id[-1] % 8])


def combine(store: StoreEngine) -> None:
    # A round without a job is not the end: the job may wait for a sync, which the next round performs.
    idle = 0
    while idle < 2:
        sync = store.take_sync(everything=True)
        if sync is not None:
            sync.run()
            store.finish_sync(sync)
        job = store.take_gc()
        idle = 0 if job is not None else idle + 1
        if job is not None:
            job.run()
            store.finish_gc(job)


def measured(name: str, work: Callable[[StoreEngine], None], store: StoreEngine, count: int = TOTAL) -> None:
    started, processor = time.perf_counter(), time.process_time()
    work(store)
    elapsed = time.perf_counter() - started
    used = (time.process_time() - processor) / count * 1e6
    rate, megabytes = count / elapsed, count * len(BODY) / elapsed / 1e6
    print(f"{name:36}{rate:10,.0f} messages/s {megabytes:8,.0f} MB/s {used:7.1f} us of processor a message")


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=directory) as root:
        measured("write and sync groups, one thread", write_in_one_thread, opened(f"{root}/one"))
    with tempfile.TemporaryDirectory(dir=directory) as root:
        store = opened(f"{root}/beside")
        measured("write, syncing in another thread", write_beside, store)
        measured("read, 64 at a time", read, store)
        measured("remove seven of eight", remove, store, TOTAL * 7 // 8)
        before = store.file_sizes[0]
        measured("give back their bytes", combine, store, TOTAL * 7 // 8)
        after, wanted = store.file_sizes
        print(f"{before / 1e6:.0f} MB of files became {after / 1e6:.0f}, {wanted / 1e6:.0f} of them wanted")
        store.close()


if __name__ == "__main__":
    main()
