"""A byte of a data directory is not what was written: the broker starts, says what it found, and loses what was damaged and nothing else."""

from __future__ import annotations

import pytest

from warren.tests.behaviour.wire import Client
from warren.tests.torture.broker import TorturedBroker

COUNT = 1500  # a segment's block has up to 512 messages, and goes as one


@pytest.fixture
def broker(tmp_path):
    with TorturedBroker(tmp_path / "data", tmp_path / "broker.log") as broker:
        yield broker


def started(broker):
    broker.begin()
    return Client(broker.url())


def bodies(size):
    return [f"{number} ".ljust(size, "b").encode() for number in range(COUNT)]


def publish(broker, size):
    client = started(broker)
    channel = client.channel()
    channel.queue("q", durable=True)
    channel.confirm()
    for body in bodies(size):
        channel.publish(body.decode(), "q", delivery_mode=2)
        client.receive(0)  # so that they come in many batches, each a frame of the journal
    channel.confirms(1, COUNT)
    client.abort()


# What is damaged, how large the messages are, whether the broker stops cleanly before: only then are they in a segment.
@pytest.mark.parametrize(
    ("pattern", "size", "is_clean"),
    [
        ("journal/*.wal", 100, False),
        ("queues/*/*.idx", 100, True),
        ("msg_store_persistent/*.rdq", 8_000, False),
        ("msg_store_persistent/*.rdq", 8_000, True),
    ],
    ids=["journal", "segment", "bodies", "bodies, clean stop"],
)
def test_a_flipped_byte_in_the_middle(broker, tmp_path, pattern, size, is_clean):
    publish(broker, size)
    if is_clean:
        broker.terminate()
        assert broker.ended()
    else:
        broker.kill()
    file = max((tmp_path / "data").glob(f"vhosts/*/{pattern}"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    at = len(data.rstrip(b"\0")) // 2
    data[at] ^= 0xFF
    file.write_bytes(data)
    client = started(broker)
    found = client.channel().get_all("q")
    client.abort()
    log = broker.log.read_text()
    named = "is damaged on the disk and lost" if file.suffix == ".rdq" else file.name
    assert "damaged" in log and named in log, log
    whole = bodies(size)
    assert found == [body for body in whole if body in set(found)], "something is torn, twice there, or out of order"
    assert COUNT // 4 < len(found) < COUNT, f"{len(found)} of {COUNT} are left"
    if size == 8_000:
        assert len(found) == COUNT - 1
