"""Which backing queue a queue gets on a node that keeps everything in memory; on others `Durability` opens it."""

from __future__ import annotations

from collections.abc import Callable

from ...routing.arguments import QueueSettings
from ...store.queue.backing_queue import BackingQueue, Recover
from ...store.queue.memory_queue import MemoryQueue
from ...store.queue.priority_queue import PriorityQueue


def open_in_memory(settings: QueueSettings, clock: Callable[[], float]) -> BackingQueue:
    """A new, initialised backing queue; `clock` gives monotonic seconds."""
    backing: BackingQueue
    if settings.max_priority is not None:
        backing = PriorityQueue(settings.max_priority, lambda level: MemoryQueue(clock))
    else:
        backing = MemoryQueue(clock)
    backing.init(Recover.NEW)
    backing.set_queue_mode(settings.queue_mode)
    return backing
