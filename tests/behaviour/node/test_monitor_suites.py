"""disk_monitor_SUITE, unit_disk_monitor_SUITE and unit_vm_memory_monitor_SUITE (section 12.5): what of them is about a
whole broker.

`parse_line_linux` and the monitors' own life are in tests/actors.
"""

from __future__ import annotations

import shutil

import pytest

from warren import Broker, Settings

TOTAL = 3 << 30


@pytest.fixture
def monitored(tmp_path):
    """`monitored(**settings)` is a broker with a disk and a known memory."""
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
    """After a restart the free figure is a non-negative integer."""
    broker = monitored()
    broker.stop()
    broker.start()
    free = broker._node.ask_node(("set_disk_free_limit", 50_000_000))["free"]
    assert isinstance(free, int) and 0 <= free <= shutil.disk_usage("/").total * 1000


@pytest.mark.parametrize(
    ("limit", "octets"), [("70MiB", 73_400_320), ("50MB", 50_000_000), (1.0, TOTAL), (1.5, TOTAL * 3 // 2)]
)
def test_set_disk_free_limit_command(monitored, limit, octets):
    """mem_relative 1 and 1.5, and sizes with units."""
    assert monitored().set_disk_free_limit(limit) == octets


def test_set_vm_memory_high_watermark_relative1(monitored):
    """1.0 gives exactly what there is."""
    assert monitored().set_memory_high_watermark(1.0) == TOTAL


def test_set_vm_memory_high_watermark_relative2(tmp_path, monitored):
    """So does RabbitMQ's key for it in a file."""
    file = tmp_path / "warren.toml"
    file.write_text("vm_memory_high_watermark.relative = 1.0\n")
    assert (
        monitored(vm_memory_high_watermark=Settings.from_toml(str(file)).vm_memory_high_watermark)._node.memory["limit"]
        == TOTAL
    )


@pytest.mark.parametrize(
    ("absolute", "octets"), [(104_857_600, 104_857_600), ("100MiB", 104_857_600), (TOTAL + 1, TOTAL)]
)
def test_set_vm_memory_high_watermark_absolute(monitored, absolute, octets):
    """104857600 gives the less of that and what there is."""
    assert monitored().set_memory_high_watermark(absolute) == octets
