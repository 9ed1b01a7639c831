"""A broker that really runs low on memory: publishers wait, consumers drain, memory goes back to the system.

AB-33, AB-34, QS-16, QS-34, queue-and-store section 8.2, queue-and-store section 8.6.
"""

from __future__ import annotations

import select
import sys
import time

import pytest

from warren import BrokerError
from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
    QueuePurgeOk,
)

from ..child import ChildBroker
from ..oracle import ORACLE
from ..wire import Wire, publish_frames

MIB = 1 << 20
TIMEOUT = 60.0

pytestmark = pytest.mark.skipif(bool(ORACLE), reason="needs a broker with settings of its own")
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in /proc")


def declared(wire, name="backlog"):
    wire.open_channel(1)
    return wire.call(1, QueueDeclare(queue=name), QueueDeclareOk).queue


@needs_proc
def test_publishers_wait_while_consumers_drain():
    """Publishers wait and consumers drain while memory is low; only the memory in use decides when the alarm begins and
    ends (AB-33, AB-34, QS-34).
    """
    with (
        ChildBroker(vm_memory_high_watermark="96MiB", memory_monitor_interval=20) as child,
        Wire.open(child.address) as publisher,
        Wire.open(child.address) as consumer,
    ):
        queue = declared(publisher)
        frames = memoryview(publish_frames(1, b"x" * 16_000, queue, frame_max=publisher.frame_max) * 64)
        sent = 0
        while not select.select([publisher.sock], [publisher.sock], [], TIMEOUT)[0]:
            sent += publisher.sock.send(frames[sent % len(frames) :])
            assert sent < 2_000 * MIB, "nobody stops it"
        assert publisher.method(0, ConnectionBlocked).reason == "low on memory"
        assert child.memory() > 96 * MIB

        consumer.open_channel(1)
        consumer.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
        drained = 0
        while publisher.sock not in (ready := select.select([publisher.sock, consumer.sock], [], [], TIMEOUT)[0]):
            assert ready, f"still blocked after {drained} of {sent} octets"
            drained += len(consumer.sock.recv(MIB))
        publisher.method(0, ConnectionUnblocked)
        assert drained > 10 * MIB
        consumer.hang_up()


@needs_proc
def test_a_purged_backlog_is_given_back_to_the_system():
    """The memory of a purged backlog goes back to the system: the C library would otherwise keep all of it (QS-16)."""
    with ChildBroker() as child, Wire.open(child.address) as wire:
        queue = declared(wire)
        frames = publish_frames(1, b"x" * 1024, queue) * 1000
        for _ in range(100):
            wire.send(frames)
        wire.call(1, QueueDeclare(queue=queue, passive=True), QueueDeclareOk)
        assert child.memory() > 110 * MIB
        assert wire.call(1, QueuePurge(queue=queue), QueuePurgeOk).message_count == 100_000
        deadline = time.monotonic() + TIMEOUT
        while child.memory() > 60_000_000:
            assert time.monotonic() < deadline, f"{child.memory() / MIB:.0f} MiB"
            time.sleep(0.02)


@needs_proc
def test_the_watermark_changes_at_run_time(start_broker):
    """When the memory watermark is changed at run time, the alarm is on or off by the time the call returns
    (queue-and-store section 8.1).
    """
    target = start_broker(memory_monitor_interval=3_600_000)
    with Wire.open(target.address) as wire:
        wire.open_channel(1)
        assert target.embedded.set_memory_high_watermark("1MiB") == MIB
        wire.publish(1, b"x", routing_key="nowhere")
        assert wire.method(0, ConnectionBlocked).reason == "low on memory"
        target.embedded.set_alarm("memory", False)  # clears the operator's alarm, which is not set
        assert [row.state for row in target.embedded.connections()] == ["blocked"]
        assert target.embedded.set_memory_high_watermark(1.0) > 64 * MIB
        wire.method(0, ConnectionUnblocked)


def test_a_disk_without_space_blocks_publishers(start_broker, tmp_path):
    """With a data directory, a disk whose free space is below the limit blocks publishers (queue-and-store section
    8.6). The limit here is above the size of the disk.
    """
    target = start_broker(data_dir=tmp_path, disk_free_limit=1000.0, total_memory_available_override_value="100GB")
    with Wire.open(target.address) as wire:
        wire.open_channel(1)
        wire.publish(1, b"x", routing_key="nowhere")
        assert wire.method(0, ConnectionBlocked).reason == "low on disk"
        assert target.embedded.set_disk_free_limit(0) == 0
        wire.method(0, ConnectionUnblocked)


def test_limits_that_cannot_be_set(start_broker):
    target = start_broker()
    with pytest.raises(ValueError, match="'plenty' is not a share of memory from 0.0 to 1.0, or"):
        target.embedded.set_memory_high_watermark("plenty")
    with pytest.raises(BrokerError, match="530 NOT_ALLOWED - a node without a data_dir keeps nothing on a disk"):
        target.embedded.set_disk_free_limit("1GB")
    assert target.embedded.queues() == []
