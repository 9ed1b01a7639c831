"""The backing queues: nanoseconds per message in memory, messages per second on disk. `python -m
warren.bench.backing_queue [directory]`.

One thread does everything, syncs included. `bench.journal` measures commits in a thread of their own, as a node runs
them.
"""

from __future__ import annotations

import sys
import tempfile
import time
import timeit
from collections.abc import Callable

from ..store.bodies.store_client import StoreClient
from ..store.bodies.store_engine import StoreEngine
from ..store.disk.real_disk import RealDisk
from ..store.index.queue_index import QueueIndex
from ..store.journal.journal_engine import JournalEngine
from ..store.journal.log_writer import LogWriter
from ..store.messages.message import FetchedMessages, Origin
from ..store.queue.backing_queue import BackingQueue
from ..store.queue.levels.priority_queue import PriorityQueue
from ..store.queue.memory_queue import MemoryQueue
from ..store.queue.variable.variable_queue import VariableQueue

ORIGIN = Origin("", ("bench",))
PERSISTENT = Origin("", ("bench",), persistent=True)
BODY = 1024
LARGE = 10_000
CLIENT = "queue"


def contents(count: int, body: int = BODY) -> list[bytes]:
    head = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + body.to_bytes(8, "big") + b"\x00\x00\xce"
    return [head + b"\x03\x00\x01" + body.to_bytes(4, "big") + bytes(body) + b"\xce" for _ in range(count)]


def rounds(queue: BackingQueue) -> dict[str, tuple[int, Callable[[], None]]]:
    run = contents(200)
    single = contents(1)

    def transient() -> None:
        queue.publish(ORIGIN, run, 200 * BODY, None, False)
        queue.fetch(200, False)

    def delivered() -> None:
        queue.ack(queue.publish_delivered(ORIGIN, run, 200 * BODY, None, False))

    def fifties() -> None:
        queue.publish(ORIGIN, run, 200 * BODY, None, True)
        for _ in range(4):
            for delivery in queue.fetch(50, True):
                queue.ack(delivery.tags)
        queue.drain_confirmed()

    def three_consumers() -> None:
        tags = queue.publish_delivered(ORIGIN, run, 200 * BODY, None, False)
        for consumer in range(3):
            queue.ack(tags[consumer::3])

    def singles() -> None:
        for _ in range(200):
            queue.publish(ORIGIN, single, BODY, None, False)
        for delivery in queue.fetch(200, True):
            for tag in delivery.tags:
                queue.ack(range(tag, tag + 1))

    return {
        "publish 200, fetch 200, no ack": (200, transient),
        "publish_delivered 200, ack 200": (200, delivered),
        "publish 200, 4 x (fetch 50, ack 50)": (200, fifties),
        "publish_delivered, 3 consumers ack": (200, three_consumers),
        "200 x publish 1, fetch 200, 200 x ack 1": (200, singles),
    }


class DurableQueue:
    """One variable queue with its journal and its stores, which do in this thread what processes do in several."""

    def __init__(self, root: str) -> None:
        disk = RealDisk(root)
        disk.make_dir("journal")
        self.journal = JournalEngine(disk, "journal")
        self.journal.recover()
        self.log = LogWriter()
        self.engines: dict[StoreClient, StoreEngine] = {}
        for kind in ("persistent", "transient"):
            engine = StoreEngine(disk, kind, f"{root}/{kind}-index", kind == "persistent")
            engine.recover(None, lambda: ())
            engine.register(CLIENT)
            self.engines[StoreClient()] = engine
        self.persistent, self.transient = self.engines
        index = QueueIndex(disk, "queue", 1, self.log)
        self.queue = VariableQueue(1, index, self.persistent, self.transient)

    def send(self) -> None:
        """Pass on what the queue has gathered for the journal and the stores."""
        for part in self.log.take():
            self.journal.append(part.queue, part.parts, part.records, part.next_number, part.sizes)
        for client, engine in self.engines.items():
            sent = client.take()
            if sent is not None:
                engine.write(CLIENT, sent.writes)
                engine.remove(CLIENT, sent.removes)

    def sync(self) -> int:
        """Write everything; returns how many publishes are confirmed by it."""
        self.send()
        journal, queue = self.journal, self.queue
        for client, engine in self.engines.items():
            while (sync := engine.take_sync()) is not None:
                sync.run()
                engine.finish_sync(sync)
                while (collection := engine.take_gc()) is not None:
                    collection.run()
                    engine.finish_gc(collection)
            for report in engine.take_reports():
                client.answered(report.ids)
        position = journal.write_all()
        if journal.closed_files or queue.segment_writer.needs_flush:
            flush = queue.segment_writer.take_flush(True)
            if flush is not None:
                flush.run()
                queue.segment_writer.flushed(flush)
            journal.retire(journal.current)
            batch = journal.take_batch()
            if batch is not None:
                journal.commit(batch)
                position = journal.committed(batch)
                journal.unlink_retired(batch)
        queue.durable(position, self.persistent.durable)
        return sum(last - first + 1 for first, last in queue.drain_confirmed())

    def fetch(self, count: int) -> list[FetchedMessages]:
        """Up to `count` messages; what is on the disk is read first."""
        while not self.queue.available(1) and (load := self.queue.prepare()) is not None:
            self.send()
            load.run()
            persistent = self.read(self.persistent, load.missing.persistent)
            load.reader.prepared(load, persistent, self.read(self.transient, load.missing.transient))
        return self.queue.fetch(count, True)

    def read(self, client: StoreClient, ids: list[bytes]) -> list[bytes | None]:
        engine = self.engines[client]
        job = engine.read(ids)
        job.run()
        engine.finish_read(job)
        return job.messages

    def pass_through(self, total: int, body: int) -> None:
        """Publish with confirms, deliver in fifties, acknowledge; a sync for every thousand."""
        run = contents(200, body)
        confirmed = 0
        for published in range(200, total + 200, 200):
            self.queue.publish(PERSISTENT, run, 200 * body, None, True)
            for _ in range(4):
                for delivery in self.fetch(50):
                    self.queue.ack(delivery.tags)
            if not published % 1000:
                confirmed += self.sync()
        assert confirmed == total

    def fill(self, total: int, body: int) -> None:
        run = contents(200, body)
        for published in range(200, total + 200, 200):
            self.queue.publish(PERSISTENT, run, 200 * body, None, True)
            if not published % 1000:
                self.sync()

    def drain(self, total: int, body: int) -> None:
        drained = synced = 0
        while deliveries := self.fetch(200):
            for delivery in deliveries:
                drained += len(delivery.contents)
                self.queue.ack(delivery.tags)
            if drained >= synced + 1000:
                self.sync()
                synced = drained
        assert drained == total


def on_disk(directory: str | None) -> None:
    for body, total in ((BODY, 100_000), (LARGE, 10_000)):
        for mode in ("default", "lazy"):
            with tempfile.TemporaryDirectory(dir=directory) as root:
                node = DurableQueue(root)
                node.queue.set_queue_mode(mode)
                print(f"VariableQueue, {mode}, persistent messages of {body} bytes")
                steps: tuple[tuple[str, Callable[[int, int], None]], ...] = (
                    ("publish, confirm, fetch, ack", node.pass_through),
                    ("publish a backlog, confirm", node.fill),
                    ("drain it", node.drain),
                )
                for name, work in steps:
                    started, processor = time.perf_counter(), time.process_time()
                    work(total, body)
                    elapsed, processor = time.perf_counter() - started, time.process_time() - processor
                    rate, cost = total / elapsed, processor / total * 1e9
                    print(f"  {name:42s}{rate:12,.0f} messages/s {cost:8.0f} ns of processor each")


def main() -> None:
    on_disk(sys.argv[1] if len(sys.argv) > 1 else None)
    for queue in (MemoryQueue(), PriorityQueue(9, lambda priority: MemoryQueue())):
        print(type(queue).__name__)
        for name, (count, work) in rounds(queue).items():
            best = min(timeit.repeat(work, number=500, repeat=5)) / 500 / count
            print(f"  {name:42s}{best * 1e9:8.1f} ns/message")


if __name__ == "__main__":
    main()
