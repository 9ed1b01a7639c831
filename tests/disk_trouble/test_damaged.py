"""A changed byte in a data directory: the broker starts, logs the damage, and loses only the damaged messages."""

from __future__ import annotations

import pytest

from warren.tests.behaviour.wire import Client
from warren.tests.torture.broker import TorturedBroker

#: How many messages there are. A block of a segment has up to 512, and is lost as a whole.
COUNT = 1500


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
        client.receive(0)  # publish in many batches, because each becomes a frame of the journal
    channel.confirms(1, COUNT)
    client.abort()


# The damaged file, the size of the messages, and whether the broker stops cleanly, at which it writes messages to
# segments.
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
    assert found == [body for body in whole if body in set(found)], "a message is torn, duplicated or out of order"
    assert COUNT // 4 < len(found) < COUNT, f"{len(found)} of {COUNT} are left"
    if size == 8_000:
        assert len(found) == COUNT - 1
