"""A data directory on a file system that fills up: clients are told, nothing confirmed is lost, and it goes on by itself when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import CAPABILITIES, Client, Event, Refused
from warren.tests.torture.broker import BrokerFailed, TorturedBroker

MIB = 1 << 20
SIZE = 24 * MIB
BODY = 20_000
BLOCKABLE = {**CAPABILITIES, "connection.blocked": True}

# What is left is not looked at, so that it really becomes nothing.
WATCHES_NO_DISK = """
from functools import partial
Settings = partial(Settings, disk_free_limit=0)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here: that needs root, and a kernel that lets it")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def broker(small_disk, tmp_path):
    with TorturedBroker(small_disk / "data", tmp_path / "broker.log", fault=WATCHES_NO_DISK) as broker:
        yield broker


def started(broker):
    broker.begin()
    return Client(broker.url(), BLOCKABLE)


class Publisher:
    """Publishes numbered messages with confirms; `confirmed` are the numbers of those that were."""

    def __init__(self, client, queue):
        self.client = client
        self.queue = queue
        self.channel = client.channel()
        self.channel.queue(queue, durable=True)
        self.channel.confirm()
        self.sent = 0
        self.confirmed = set()

    def publish(self):
        self.sent += 1
        self.channel.publish(f"{self.sent} ".ljust(BODY, "d"), self.queue, delivery_mode=2)

    def take(self):
        """Confirms that have come."""
        self.client.receive(0)
        for event in self.client.events[self.channel.number]:
            assert isinstance(event.method, m.BasicAck), event
            tag = event.tag
            self.confirmed.update(range(1, tag + 1) if event.method.multiple else (tag,))
        self.client.events[self.channel.number].clear()

    def has_heard(self, kind):
        return any(isinstance(event.method, kind) for event in self.client.events[0])

    def fill(self):
        """Publish until the broker says that it is blocked, one unconfirmed window at a time."""
        while not self.has_heard(m.ConnectionBlocked):
            if self.sent - len(self.confirmed) < 20:
                self.publish()
                self.client.receive(0)
            elif not self.client.receive(15):
                raise AssertionError(f"neither a confirm nor connection.blocked; {len(self.confirmed)} were confirmed")
            self.take()

    def wait_confirmed(self):
        while len(self.confirmed) < self.sent:
            assert self.client.receive(20), f"{self.sent - len(self.confirmed)} are still not confirmed"
            self.take()


def numbers(client, queue):
    return [int(body.split(b" ")[0]) for body in client.channel().get_all(queue)]


def test_it_fills_up_and_goes_on_when_there_is_room(broker, small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(10 * MIB))
    client = started(broker)
    publisher = Publisher(client, "q")
    publisher.fill()
    blocked: Event = client.wait(0, m.ConnectionBlocked)
    assert blocked.method.reason == "low on disk"
    assert 0 < len(publisher.confirmed) < publisher.sent
    log = broker.log.read_text()
    assert "No space left on device" in log
    filler.unlink()
    publisher.wait_confirmed()
    client.wait(0, m.ConnectionUnblocked)
    client.abort()
    broker.kill()
    client = started(broker)
    assert numbers(client, "q") == list(range(1, publisher.sent + 1))
    client.abort()


@pytest.mark.parametrize("end", ["kill -9", "SIGTERM"])
def test_it_does_not_start_when_not_a_byte_is_left(broker, small_disk, end):
    """A start must write a little. When it cannot, the log says why and what to do; nothing is lost, and with room all is there."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * MIB))
    client = started(broker)
    publisher = Publisher(client, "q")
    publisher.fill()
    if end == "SIGTERM":
        broker.terminate()
    else:
        broker.kill()
    with suppress(OSError, Refused):
        while client.receive(20):
            publisher.take()
    assert end == "kill -9" or broker.ended()
    client.abort()
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with suppress(BrokerFailed, Refused):  # the whole directory, or a virtual host of it
        started(broker).abort()
    log = broker.log.read_text()
    assert (
        "No space left on device. No data is lost. Free space on that disk" in log
        or "No space left on device. Make room" in log
    )
    if broker.is_running:
        broker.kill()
    ballast.unlink()
    client = started(broker)
    found = numbers(client, "q")
    assert set(found) >= publisher.confirmed and found == sorted(set(found)) and found[-1] <= publisher.sent
    publisher = Publisher(client, "again")
    for _ in range(50):
        publisher.publish()
    publisher.wait_confirmed()
    client.abort()


def test_the_limit_blocks_before_it_is_full(small_disk, tmp_path):
    """The disk monitor's part: below the limit publishers are blocked although there is room yet; above it they are let in again."""
    filler = small_disk / "filler"
    limit = "from functools import partial; Settings = partial(Settings, disk_free_limit=8_000_000)"
    with TorturedBroker(small_disk / "data", tmp_path / "broker.log", fault=limit) as broker:
        client = started(broker)
        publisher = Publisher(client, "q")
        filler.write_bytes(bytes(12 * MIB))
        publisher.fill()
        assert client.wait(0, m.ConnectionBlocked).method.reason == "low on disk"
        filler.unlink()
        publisher.wait_confirmed()
        client.wait(0, m.ConnectionUnblocked)
        client.abort()


def test_a_file_system_that_has_become_read_only_is_refused(broker, small_disk):
    """The error names the directory, the reason and the way out; made writable again everything is there."""
    client = started(broker)
    publisher = Publisher(client, "q")
    publisher.publish()
    publisher.wait_confirmed()
    client.abort()
    broker.kill()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = subprocess.run(
        [Path(sys.executable).with_name("warren"), "start", "--port", "0", "--data-dir", str(small_disk / "data")],
        capture_output=True,
        text=True,
        timeout=30,
        cwd="/",
        check=False,
    )
    assert result.returncode == 78
    assert f"data directory '{small_disk / 'data'}' cannot be used" in result.stderr
    assert "read-only mount?" in result.stderr and "Traceback" not in result.stderr
    subprocess.run(["mount", "-o", f"remount,rw,size={SIZE}", str(small_disk)], check=True)
    client = started(broker)
    assert numbers(client, "q") == [1]
    client.abort()
