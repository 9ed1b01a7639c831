"""A full file system: publishers are blocked, no confirmed message is lost, and the broker continues when space is
free.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import CAPABILITIES, Client, Event, Refused
from warren.tests.torture.broker import BrokerFailed, TorturedBroker

MIB = 1 << 20
SIZE = 24 * MIB
BODY = 20_000
#: Seconds that a test waits for the broker; long, because other tests may slow the machine down.
PATIENCE = 300.0
BLOCKABLE = {**CAPABILITIES, "connection.blocked": True}

#: Python code that switches the disk monitor off, so that the file system does fill up.
WATCHES_NO_DISK = """
from functools import partial
Settings = partial(Settings, disk_free_limit=0)
"""


#: Python code that sets a limit for the free space, and has the disk monitor measure often below it.
LOOKS_OFTEN = """
from functools import partial
from warren.actors.resources import disk_monitor
Settings = partial(Settings, disk_free_limit=8_000_000)
disk_monitor.MAX_INTERVAL = 200
"""


#: Python code by which the broker keeps no reserve for a start on a full disk.
HAS_NO_RESERVE = """
from dataclasses import replace
limits = replace(limits, reserve=0)
"""


#: Python code that makes files small enough for the small disk: the message store frees only whole files, and the
#: reserve is made only where twice as much is free. The blocks that a journal of a killed broker has reserved ahead are
#: free again soon after the next start, so these are few as well: the start must not find room for a new reserve.
HAS_SMALL_FILES = """
from dataclasses import replace
from warren.store.journal import journal_engine
limits = replace(limits, store=1 << 20, reserve=4 << 20)
journal_engine.RESERVED_AHEAD = 1 << 16
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here, which needs root and the permission of the kernel")
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
    """Publishes numbered messages with confirms. `confirmed` has the numbers of the confirmed ones."""

    def __init__(self, client, queue, body=BODY):
        self.client = client
        self.queue = queue
        self.body = body
        self.channel = client.channel()
        self.channel.queue(queue, durable=True)
        self.channel.confirm()
        self.sent = 0
        self.confirmed = set()

    def publish(self):
        self.sent += 1
        self.channel.publish(f"{self.sent} ".ljust(self.body, "d"), self.queue, delivery_mode=2)

    def take(self):
        """Note the confirms that have arrived."""
        self.client.receive(0)
        for event in self.client.events[self.channel.number]:
            assert isinstance(event.method, m.BasicAck), event
            tag = event.tag
            self.confirmed.update(range(1, tag + 1) if event.method.multiple else (tag,))
        self.client.events[self.channel.number].clear()

    def has_received(self, kind):
        return any(isinstance(event.method, kind) for event in self.client.events[0])

    def fill(self):
        """Publish until the broker sends connection.blocked, with at most 20 unconfirmed messages."""
        while not self.has_received(m.ConnectionBlocked):
            if self.sent - len(self.confirmed) < 20:
                self.publish()
                self.client.receive(0)
            elif not self.client.receive(PATIENCE):
                raise AssertionError(f"no confirm and no connection.blocked; {len(self.confirmed)} are confirmed")
            self.take()

    def wait_confirmed(self):
        while len(self.confirmed) < self.sent:
            assert self.client.receive(PATIENCE), f"{self.sent - len(self.confirmed)} are still not confirmed"
            self.take()


def numbers(client, queue):
    return [int(body.split(b" ")[0]) for body in client.channel().get_all(queue)]


def test_publishing_continues_when_a_full_disk_has_space_again(broker, small_disk):
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
@pytest.mark.parametrize("body", [BODY, 3000], ids=["in the message store", "in the journal"])
def test_a_start_on_a_disk_full_of_messages_lets_consumers_make_room(small_disk, tmp_path, end, body):
    """On a disk that is full of messages the broker starts by means of the reserve, which is made again when consumers
    have made room. No confirmed message is lost.
    """
    reserve = small_disk / "data" / "reserve"
    fault = WATCHES_NO_DISK + HAS_SMALL_FILES
    with TorturedBroker(small_disk / "data", tmp_path / "broker.log", fault=fault) as broker:
        client = started(broker)
        assert reserve.stat().st_blocks * 512 >= 4 * MIB
        (small_disk / "ballast").write_bytes(bytes(8 * MIB))
        publisher = Publisher(client, "q", body)
        publisher.fill()
        leave_full(broker, client, publisher, small_disk, end)
        client = started(broker)
        assert not reserve.exists()
        found = numbers(client, "q")
        assert set(found) >= publisher.confirmed and found == sorted(set(found)) and found[-1] <= publisher.sent
        client.channel().delete("q")
        (small_disk / "filler").unlink()
        (small_disk / "ballast").unlink()
        client.abort()
        deadline = time.monotonic() + PATIENCE
        while not reserve.exists():
            assert time.monotonic() < deadline, "the reserve was not made again"
            time.sleep(0.1)


def leave_full(broker, client, publisher, small_disk, end):
    """End the broker, and fill the space that it gave back meanwhile."""
    if end == "SIGTERM":
        broker.terminate()
    else:
        broker.kill()
    with suppress(OSError, Refused):
        while client.receive(PATIENCE):
            publisher.take()
    assert end == "kill -9" or broker.ended()
    client.abort()
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("end", ["kill -9", "SIGTERM"])
def test_a_broker_without_a_reserve_does_not_start_on_a_full_disk(small_disk, tmp_path, end):
    """Without a reserve the broker does not start on a full disk, because a start must write a little. The log has the
    reason and the way out; with free space, no message is lost.
    """
    fault = WATCHES_NO_DISK + HAS_NO_RESERVE
    with TorturedBroker(small_disk / "data", tmp_path / "broker.log", fault=fault) as broker:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(6 * MIB))
        client = started(broker)
        publisher = Publisher(client, "q")
        publisher.fill()
        leave_full(broker, client, publisher, small_disk, end)
        with suppress(BrokerFailed, Refused):  # the start of the node fails, or only that of the virtual host
            started(broker).abort()
        log = broker.log.read_text()
        # The text comes from the node or from a virtual host.
        assert "No space left on device" in log and "Free space on that" in log
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


def test_the_disk_free_limit_blocks_publishers_before_the_disk_is_full(small_disk, tmp_path):
    """The disk monitor blocks publishers below the limit, before the disk is full, and unblocks them above it."""
    filler = small_disk / "filler"
    with TorturedBroker(small_disk / "data", tmp_path / "broker.log", fault=LOOKS_OFTEN) as broker:
        client = started(broker)
        publisher = Publisher(client, "q")
        filler.write_bytes(bytes(12 * MIB))
        publisher.fill()
        assert client.wait(0, m.ConnectionBlocked).method.reason == "low on disk"
        filler.unlink()
        publisher.wait_confirmed()
        client.wait(0, m.ConnectionUnblocked)
        client.abort()


def test_a_read_only_file_system_is_refused(broker, small_disk):
    """A start on a read-only file system is refused with the directory, the reason and the way out. Once the file
    system is writable, the message is there.
    """
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
        timeout=300,
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
