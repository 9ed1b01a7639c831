"""disk_monitor_SUITE, unit_disk_monitor_SUITE and unit_vm_memory_monitor_SUITE (queue-and-store section 12.5): the
cases that need a whole broker.

The cases of the monitors alone are in tests/actors/resources, `parse_line_linux` in tests/runtime/machine.
"""

from __future__ import annotations

import shutil

import pytest

from warren import Broker, Settings

TOTAL = 3 << 30


@pytest.fixture
def monitored(tmp_path):
    """`monitored(**settings)` returns a broker with a data directory, on a machine with a known amount of memory."""
    brokers = []

    def start(**settings):
        brokers.append(
            Broker(data_dir=str(tmp_path / "data"), total_memory_available_override_value=TOTAL, **settings).start()
        )
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.stop()


def test_disk_monitor(monitored):
    """After a restart the free space is a non-negative integer."""
    broker = monitored()
    broker.stop()
    broker.start()
    free = broker._node.ask_node(("set_disk_free_limit", 50_000_000))["free"]
    assert isinstance(free, int) and 0 <= free <= shutil.disk_usage("/").total * 1000


@pytest.mark.parametrize(
    ("limit", "size"), [("70MiB", 73_400_320), ("50MB", 50_000_000), (1.0, TOTAL), (1.5, TOTAL * 3 // 2)]
)
def test_set_disk_free_limit_command(monitored, limit, size):
    """The limit can be a multiple of the memory, such as mem_relative 1 and 1.5, or a size with a unit."""
    assert monitored().set_disk_free_limit(limit) == size


@pytest.mark.parametrize("limit", ["9" * 400, 10**400, 2**63], ids=["text", "number", "64 bits"])
def test_a_disk_limit_beyond_all_disks_is_refused(monitored, limit):
    """The disk monitor cannot work with such a number, and the node would end with it."""
    broker = monitored()
    with pytest.raises(ValueError, match="whole number of bytes"):
        broker.set_disk_free_limit(limit)
    assert broker.queues() == []


def test_set_vm_memory_high_watermark_relative1(monitored):
    """A watermark of 1.0 is all the memory there is."""
    assert monitored().set_memory_high_watermark(1.0) == TOTAL


def test_set_vm_memory_high_watermark_relative2(tmp_path, monitored):
    """A relative watermark can be set in a file with RabbitMQ's key."""
    file = tmp_path / "warren.toml"
    file.write_text("vm_memory_high_watermark.relative = 1.0\n")
    assert (
        monitored(vm_memory_high_watermark=Settings.from_toml(str(file)).vm_memory_high_watermark)._node.memory["limit"]
        == TOTAL
    )


@pytest.mark.parametrize(
    ("absolute", "size"), [(104_857_600, 104_857_600), ("100MiB", 104_857_600), (TOTAL + 1, TOTAL)]
)
def test_set_vm_memory_high_watermark_absolute(monitored, absolute, size):
    """An absolute watermark is 104857600 bytes, or all the memory if that is less."""
    assert monitored().set_memory_high_watermark(absolute) == size
