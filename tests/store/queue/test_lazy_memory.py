"""Section 7.3, scaled down: what a lazy queue keeps in memory does not grow with what is in it. Ten million messages are bench/backlog.py's."""

from __future__ import annotations

import gc
import tracemalloc

from warren.store.data_dir.vhost_store import VhostStore
from warren.store.disk.real_disk import RealDisk
from warren.store.messages.message import Origin

ORIGIN = Origin("", ("q",), b"\x10\x00\x02", persistent=True)
SIZE = 1000
AT_ONCE = 1000


def held(store: VhostStore) -> int:
    """Bytes of Python objects, when the disk has all there is to write."""
    store.write_all()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_lazy_queue_of_any_length_takes_the_same_memory(tmp_path):
    """No more than 1.5 MB above the empty queue, whether it has 20,000 messages of 1 KB or five times as many; they all come back, in order."""
    head = (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + SIZE.to_bytes(8, "big")
        + b"\x10\x00\x02\xce\x03\x00\x01"
        + SIZE.to_bytes(4, "big")
    )
    contents = [head + number.to_bytes(4, "big") + bytes(SIZE - 4) + b"\xce" for number in range(AT_ONCE)]
    store = VhostStore(RealDisk(str(tmp_path / "data")), str(tmp_path), journal_file_limit=8 << 20)
    store.recover({1})
    queue = store.open_queue(1)
    queue.set_queue_mode("lazy")
    tracemalloc.start()
    try:
        empty = held(store)
        grown = []
        for thousands in (20, 80):
            for _ in range(thousands):
                queue.publish(ORIGIN, contents, SIZE * AT_ONCE, None, False)
                store.write_all()
            grown.append(held(store) - empty)
    finally:
        tracemalloc.stop()
    assert queue.info("messages_ram") == 0 and len(queue) == 100_000
    assert max(grown) <= 1_500_000, grown
    assert grown[1] - grown[0] <= 100_000, grown
    for start in range(0, 100_000, 10_000):
        got = [content for delivery in queue.fetch(10_000, False) for content in delivery.contents]
        assert got == contents * 10, f"from {start}"
    assert queue.is_empty()
    store.stop()
