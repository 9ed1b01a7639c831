"""Measures messages per second through the journal: `python -m warren.bench.journal [directory]`.

Runs of 200 messages of 1 KB are published, written, synced and acknowledged: first in one thread, then with a second
thread that writes, as in a node.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor

from ..store.disk.real_disk import RealDisk
from ..store.journal.journal_engine import Batch, JournalEngine
from ..store.journal.log_writer import LogWriter
from ..store.messages.message import Origin
from ..store.messages.run import Run
from .backing_queue import BODY, contents

ORIGIN = Origin("", ("bench",), persistent=True)
RUN = 200
TOTAL = 200_000
RUNS_A_BATCH = 5


def opened(root: str) -> JournalEngine:
    disk = RealDisk(root)
    disk.make_dir("journal")
    journal = JournalEngine(disk, "journal")
    journal.recover()
    return journal


def gather(journal: JournalEngine, first: int, messages: list[bytes]) -> int:
    writer = LogWriter()
    for _ in range(RUNS_A_BATCH):
        writer.publish(1, Run(first, messages, ORIGIN, None, False, RUN * BODY))
        writer.ack(1, [range(first, first + RUN)])
        first += RUN
    for part in writer.take():
        journal.append(part.queue, part.parts, part.records, part.next_number, part.sizes)
    return first


def retire(journal: JournalEngine, batch: Batch) -> None:
    if journal.closed_files:
        journal.retire(journal.current)
    journal.unlink_retired(batch)


def in_one_thread(journal: JournalEngine) -> None:
    messages = contents(RUN)
    first = 0
    while first < TOTAL:
        first = gather(journal, first, messages)
        batch = journal.take_batch()
        assert batch is not None
        journal.commit(batch)
        journal.committed(batch)
        retire(journal, batch)


def with_a_writer(journal: JournalEngine) -> None:
    messages = contents(RUN)
    first = 0
    with ThreadPoolExecutor(1) as writer:
        writing: tuple[Future[None], Batch] | None = None
        while first < TOTAL or writing:
            if first < TOTAL and journal.gathered_bytes < 4 << 20:
                first = gather(journal, first, messages)
            elif writing:
                writing[0].result()
            if writing and writing[0].done():
                writing[0].result()
                journal.committed(writing[1])
                retire(journal, writing[1])
                writing = None
            if writing is None and (batch := journal.take_batch()):
                writing = writer.submit(journal.commit, batch), batch


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as root:
        for name, work in (("one thread", in_one_thread), ("with a writing thread", with_a_writer)):
            journal = opened(f"{root}/{name}")
            started, processor = time.perf_counter(), time.process_time()
            work(journal)
            elapsed = time.perf_counter() - started
            nanoseconds = (time.process_time() - processor) / TOTAL * 1e9
            print(f"{name:24}{TOTAL / elapsed:12,.0f} messages/s   {nanoseconds:6.0f} ns of CPU time a message")


if __name__ == "__main__":
    main()
