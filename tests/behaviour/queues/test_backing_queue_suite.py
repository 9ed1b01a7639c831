"""backing_queue_SUITE: the cases that need a whole broker (queue-and-store section 12.1); the others are in
tests/store. Also paging under alarms (queue-and-store section 12.7).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from warren import Broker
from warren.actors.resources.ram_durations import RamDurations
from warren.portable import IS_PORTABLE
from warren.store.queue.rates import INFINITE

from ..inside import Inside
from ..wire import Client

MB = 1_000_000
QUEUE = "q"


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def disk_broker(data_dir):
    with Broker(data_dir=str(data_dir), stop_timeout=100) as broker:
        yield broker


@pytest.fixture
def disk_client(disk_broker):
    client = Client(disk_broker.url)
    yield client
    client.abort()


def eventually(condition):
    """Wait for `condition`. The broker has threads of its own, so it is checked repeatedly."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.005)


def fill(client, count, size, delivery_mode=2):
    channel = client.channel()
    channel.queue(QUEUE, durable=True)
    channel.confirm()
    with client.in_one_piece():
        for number in range(count):
            channel.publish(f"{number} ".ljust(size, "."), QUEUE, delivery_mode=delivery_mode)
    assert len(channel.confirms(1, count)[0]) == count
    return channel


def open_files(directory):
    """Message store files in `directory` that this process has open, deleted ones included."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = os.readlink(descriptor)
        except FileNotFoundError:
            continue  # a descriptor of this listing itself
        if path.startswith(str(directory)) and ".rdq" in path:
            found.append(path)
    return found


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_bq_variable_queue_delete_msg_store_files_callback(disk_broker, disk_client, data_dir, verb):
    """When 30 messages of 1 MB go, their files go too, although one was just read, and none of them stays open."""
    channel = fill(disk_client, 30, MB)
    disk_broker.set_queue_mode(QUEUE, "lazy")
    (store,) = data_dir.glob("vhosts/*/msg_store_persistent")
    assert len(list(store.glob("*.rdq"))) == 2
    assert channel.get(QUEUE, no_ack=True).body.startswith(b"0 ")
    if verb == "purge":
        assert channel.purge(QUEUE) == 29
    else:
        assert channel.delete(QUEUE) == 29
    eventually(lambda: [file.name for file in store.glob("*.rdq")] == ["2.rdq"])
    eventually(lambda: not [path for path in open_files(store) if path.endswith("(deleted)")])


def test_bq_queue_recover(data_dir):
    """Confirmed messages survive a crash of the queue and a restart of the broker, and the queue's count is exact."""
    count = 2 * 1024
    with Broker(data_dir=str(data_dir), stop_timeout=100) as broker:
        client = Client(broker.url)
        fill(client, count, 20)
        Inside(broker).crash(QUEUE)
        broker.wait_idle()
        channel = client.channel()
        event = channel.get(QUEUE)
        assert (event.body.split()[0], event.method.redelivered, event.method.message_count) == (b"0", True, count - 1)
        client.abort()
    with broker:
        client = Client(broker.url)
        channel = client.channel()
        event = channel.get(QUEUE)
        assert (event.body.split()[0], event.method.redelivered, event.method.message_count) == (b"0", True, count - 1)
        client.abort()


@pytest.mark.skipif(IS_PORTABLE, reason="the memory in use cannot be measured here without /proc")
@pytest.mark.parametrize("delivery_mode", [1, 2], ids=["transient", "persistent"])
def test_paging_stops_on_a_disk_alarm_and_goes_on_after_it(disk_broker, disk_client, monkeypatch, delivery_mode):
    """While the disk alarm is on, queues write nothing to free memory, however scarce memory is, and go on after it
    (queue-and-store section 8.3).
    """
    monkeypatch.setattr("warren.actors.queue.disk.durability.REPORT_SECONDS", 0.01)
    reports = []
    report = RamDurations.report
    monkeypatch.setattr(
        RamDurations, "report", lambda durations, *fields: reports.append(fields) or report(durations, *fields)
    )
    fill(disk_client, 100, 5_000, delivery_mode)
    inside = Inside(disk_broker)
    queue = inside.queue(QUEUE)

    def in_memory():
        return inside.call(lambda: queue.backing.sub_queues.ram_count)

    disk_broker.set_alarm("disk", True)
    disk_broker.set_memory_high_watermark(0)
    before = len(reports)
    eventually(lambda: len(reports) > before + 3)
    assert in_memory() == 100
    disk_broker.set_alarm("disk", False)
    eventually(lambda: in_memory() == 0)
    # The alarm gives a queue that is paging a new target at once.
    disk_broker.set_alarm("disk", True)
    eventually(lambda: inside.call(lambda: queue.backing.paging.target) == INFINITE)
    disk_broker.set_memory_high_watermark(1.0)
    disk_broker.set_alarm("disk", False)
    bodies = disk_client.channel().get_all(QUEUE)
    assert [int(body.split()[0]) for body in bodies] == list(range(100))
