"""The memory of a lazy queue does not grow with its length (queue-and-store section 7.3). bench/backlog.py measures
ten million messages.
"""

from __future__ import annotations

import gc
import tracemalloc

from warren.store.data_dir.data_dir import DataDir
from warren.store.data_dir.file_limits import FileLimits
from warren.store.disk.real_disk import RealDisk

from ..sim_vhost import SimVhost

SIZE = 1000
AT_ONCE = 1000


def forget(vhost: SimVhost) -> None:
    """Forget what the test itself remembers of the messages."""
    queue = vhost.queue
    for remembered in (queue.published, queue.channel.confirmed, queue.channel.delivered, vhost.world.trace):
        remembered.clear()


def held(vhost: SimVhost) -> int:
    """Wait until everything is on disk; return the bytes of Python objects."""
    vhost.write_all()
    forget(vhost)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_lazy_queue_of_any_length_takes_the_same_memory(tmp_path):
    """The processes take 1.5 MB more than with an empty queue at most, for 20,000 as for 100,000 messages of 1 KB."""
    head = (
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00"
        + SIZE.to_bytes(8, "big")
        + b"\x10\x00\x02\xce\x03\x00\x01"
        + SIZE.to_bytes(4, "big")
    )
    contents = [head + number.to_bytes(4, "big") + bytes(SIZE - 4) + b"\xce" for number in range(AT_ONCE)]
    vhost = SimVhost(tmp_path, disk=RealDisk(DataDir(str(tmp_path)).vhost("/")), limits=FileLimits(journal=8 << 20))
    vhost.start()
    queue = vhost.queue
    queue.set_mode("lazy")
    tracemalloc.start()
    try:
        empty = held(vhost)
        grown = []
        for thousands in (20, 80):
            for _ in range(thousands):
                queue.publish(contents, SIZE)
                vhost.write_all()
                forget(vhost)
            grown.append(held(vhost) - empty)
    finally:
        tracemalloc.stop()
    assert queue.backing.sub_queues.ram_count == 0 and len(queue) == 100_000
    assert max(grown) <= 1_500_000, grown
    assert grown[1] - grown[0] <= 100_000, grown
    for start in range(0, 100_000, 10_000):
        got = queue.fetch(10_000)
        assert [delivered.content for delivered in got] == contents * 10, f"from {start}"
        queue.ack([delivered.tag for delivered in got])
        forget(vhost)
    assert len(queue) == 0
    vhost.stop()
    vhost.kill()
