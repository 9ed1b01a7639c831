"""A variable queue with its journal and stores on a `FaultyDisk`, without processes, and helpers for tests of it."""

from __future__ import annotations

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.index.queue_index import QueueIndex
from warren.store.journal.journal_engine import JournalEngine
from warren.store.messages.message import Origin
from warren.store.queue.variable.variable_queue import VariableQueue

from .engines import DirectBodies, DirectLog, DirectQueue, recover, status, stored_ids

SEGMENT = 64
PERSISTENT = Origin("", ("q",), persistent=True)
TRANSIENT = Origin("", ("q",))


def contents(count: int, size: int = 10, first: int = 0) -> list[bytes]:
    head = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x10\x00\x02\xce"
    return [head + number.to_bytes(8, "big") + bytes(max(0, size - 8)) for number in range(first, first + count)]


class Node:
    """One queue with its journal and stores.

    Bodies go to the store by default, so that paging can take them out of memory. A test that runs the queue's jobs at
    moments of its own gives VariableQueue as `kind`.
    """

    def __init__(self, tmp_path, embed_below=0, io_batch_size=1, kind: type[VariableQueue] = DirectQueue, **more):
        self.disk = FaultyDisk()
        self.disk.make_dir("journal")
        self.tmp_path = tmp_path
        self.kind = kind
        self.options = {"embed_below": embed_below, "io_batch_size": io_batch_size, "segment_entries": SEGMENT, **more}
        self.queue = self.opened(None, is_new=True)

    def opened(self, terms, is_new=False):
        self.journal = JournalEngine(self.disk, "journal")
        replayed = self.journal.recover().get(1)
        self.persistent = DirectBodies(self.disk, "persistent", str(self.tmp_path / "p"))
        self.transient = DirectBodies(self.disk, "transient", str(self.tmp_path / "t"), is_durable=False)
        self.transient.recover(may_trust=False)
        index = QueueIndex(self.disk, "q", 1, DirectLog(self.journal), SEGMENT)
        self.persistent.recover(terms is not None, lambda: [stored_ids(self.disk, "q", 1, SEGMENT, replayed)])
        queue = self.kind(1, index, self.persistent, self.transient, replayed, **self.options)
        if not is_new:
            recover(queue, self.persistent, terms)
        return queue

    def sync(self):
        for store in (self.persistent, self.transient):
            store.write_all()
        self.queue.durable(self.journal.write_all(), self.persistent.durable)

    def stop(self):
        terms = self.queue.terminate()
        self.journal.close_flushed()
        self.persistent.close()
        self.transient.close()
        return terms

    def kill(self):
        self.persistent.engine.abandon()
        self.transient.engine.abandon()
        self.disk.kill()
        self.queue = self.opened(None)

    def status(self, *keys):
        self.queue.check()
        found = status(self.queue)
        return tuple(found[key] for key in keys)

    def publish(self, count, origin=PERSISTENT, confirm=False, size=10):
        return self.queue.publish(origin, contents(count, size), count * size, None, confirm)


def page_all(queue):
    queue.paging.target = 0
    queue.page()
    while queue.paging.is_due:
        queue.page()


def tags(deliveries):
    return [tag for delivery in deliveries for tag in delivery.tags]
