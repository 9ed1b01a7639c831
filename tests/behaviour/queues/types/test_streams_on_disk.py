"""Streams of a broker with a data directory: restarts, retention, and what is read from the disk."""

import signal
import subprocess
import sys
import time

import pytest

from warren import Broker
from warren.amqp import methods as m
from warren.amqp.fields import Table, table_to_dict

from ...wire import Client

STREAM = {"x-queue-type": "stream"}


def offset(event):
    return table_to_dict(event.headers)["x-stream-offset"]


def publish(client, queue, bodies):
    """Publish, and wait for the confirms."""
    channel = client.channel()
    channel.confirm()
    with client.in_one_piece():
        for body in bodies:
            channel.publish(body, queue)
    channel.confirms(1, len(bodies))
    channel.close()


def read(client, queue, begin="first", count=1):
    """The offsets and bodies of the first `count` deliveries from `begin` on."""
    channel = client.channel()
    channel.qos(200)
    arguments = begin if isinstance(begin, Table) else {"x-stream-offset": begin}
    channel.consume(queue, arguments=arguments)
    events = []
    while len(events) < count:
        events.append(channel.delivery())
        if len(events) % 50 == 0:
            channel.ack(events[-1].tag, multiple=True)
    channel.close()
    return [(offset(event), event.body) for event in events]


def first_offset(client, queue):
    return read(client, queue)[0][0]


def test_offsets_and_messages_survive_a_restart(tmp_path):
    bodies = [b"%d" % number * (2000 if number % 7 == 0 else 1) for number in range(500)]
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", STREAM, durable=True)
        publish(client, "s", bodies)
        client.close()
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        assert client.channel().ready("s") == 500
        assert read(client, "s", count=500) == list(enumerate(bodies))
        assert read(client, "s", 444, 56) == list(enumerate(bodies))[444:]
        publish(client, "s", ["more"])
        assert read(client, "s", "last") == [(500, b"more")]
        client.close()


_PUBLISHER = """
import sys
from warren import Broker
with Broker(port=0, data_dir=sys.argv[1]) as broker:
    print(broker.url, flush=True)
    sys.stdin.read()
"""


def test_offsets_and_messages_survive_a_kill(tmp_path):
    """However often the broker is killed, no offset is left out or given twice, and every confirmed message
    is there.
    """
    expected = []
    for attempt in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _PUBLISHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
        )
        client = Client(process.stdout.readline().decode().strip())
        client.channel().queue("s", STREAM, durable=True)
        if expected:
            assert read(client, "s", count=len(expected)) == list(enumerate(expected))
        bodies = [b"%d.%d" % (attempt, number) for number in range(300)] + [b"large" * 2000] * 5
        publish(client, "s", bodies)
        expected += bodies
        client.abort()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        assert client.channel().ready("s") == len(expected)
        assert read(client, "s", count=len(expected)) == list(enumerate(expected))
        client.close()


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_retention_by_size(tmp_path, is_on_disk):
    """When a segment is begun, whole segments beyond the size leave, the oldest first, and offsets go on."""
    arguments = {**STREAM, "x-max-length-bytes": 5000, "x-stream-max-segment-size-bytes": 1000}
    with Broker(port=0, data_dir=tmp_path if is_on_disk else None) as broker:
        client = Client(broker.url)
        client.channel().queue("s", arguments, durable=True)
        for _ in range(100):
            publish(client, "s", ["x" * 100])
        assert 40 < client.channel().ready("s") <= 60
        first = first_offset(client, "s")
        assert 40 <= first < 60 and first % 10 == 0
        assert [number for number, _ in read(client, "s", 5, 100 - first)] == list(range(first, 100))
        client.close()
    if is_on_disk:
        with Broker(port=0, data_dir=tmp_path) as broker:
            client = Client(broker.url)
            assert first_offset(client, "s") == first
            for _ in range(30):
                publish(client, "s", ["x" * 100])
            assert first + 20 <= first_offset(client, "s") <= first + 40
            client.close()


def test_retention_removes_files(tmp_path):
    """Retention removes files of the index and, of large messages, the bodies in the message store."""
    arguments = {**STREAM, "x-max-length-bytes": 1_000_000, "x-stream-max-segment-size-bytes": 100_000}
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", arguments, durable=True)
        for _ in range(40):
            publish(client, "s", ["x" * 40] * 1000 + ["y" * 10_000] * 2)
        assert 900_000 < broker.queue("s").message_bytes <= 1_160_000
        [directory] = (tmp_path / "vhosts").glob("*/queues/*")
        deadline = time.monotonic() + 300
        while min(int(path.stem) for path in directory.glob("*.idx")) == 0:
            assert time.monotonic() < deadline, "the first segment file is still there"
            publish(client, "s", ["x"])
            time.sleep(0.05)
        assert first_offset(client, "s") > 16_384
        client.close()


def test_retention_by_age(tmp_path):
    """Messages that are too old leave when another segment is begun, and not before."""
    arguments = {**STREAM, "x-max-age": "1s", "x-stream-max-segment-size-bytes": 1000}
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", arguments, durable=True)
        publish(client, "s", ["x" * 5000])
        time.sleep(1.3)
        assert read(client, "s") == [(0, b"x" * 5000)]
        publish(client, "s", ["y"])
        assert read(client, "s") == [(1, b"y")]
        client.close()


def test_a_policy_shortens_a_stream(tmp_path):
    """A policy shortens a stream at once, also one to which nobody publishes."""
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", {**STREAM, "x-stream-max-segment-size-bytes": 1000}, durable=True)
        for _ in range(50):
            publish(client, "s", ["x" * 100])
        broker.set_policy("p", "s", {"max-length-bytes": 2000}, apply_to="queues")
        deadline = time.monotonic() + 300
        while client.channel().ready("s") > 20:
            assert time.monotonic() < deadline
        assert first_offset(client, "s") >= 30
        client.close()


def test_many_segments_of_the_index(tmp_path):
    """Ten consumers at ten places of a stream of several files read what follows to the end."""
    count, first = 19_000, 14_000
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", STREAM, durable=True)
        publish(client, "s", [str(number) for number in range(count)])
        channel = client.channel()
        channel.qos(100)
        found = {
            channel.consume("s", arguments={"x-stream-offset": begin}): begin for begin in range(first, count, 500)
        }
        for _ in range(sum(count - begin for begin in found.values())):
            event = channel.delivery()
            tag = event.method.consumer_tag
            assert offset(event) == found[tag] and event.body == b"%d" % found[tag]
            found[tag] += 1
            channel.ack(event.tag)
        assert set(found.values()) == {count}
        client.close()


def test_a_time_among_many_messages(tmp_path):
    """A consumer that begins at a time gets the first message of that second, which is found by reading a
    few messages.
    """
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", STREAM, durable=True)
        publish(client, "s", ["old"] * 20_000)
        now = int(time.time())
        while int(time.time()) < now + 2:
            time.sleep(0.05)
        publish(client, "s", ["new"] * 20_000)
        found = read(client, "s", Table([("x-stream-offset", "T", now + 2)]), 3)
        assert found == [(20_000 + number, b"new") for number in range(3)]
        client.close()


def test_dead_letters_go_to_a_stream(tmp_path):
    """Dead letters, with large bodies too, go to a stream by way of the journal."""
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("s", STREAM, durable=True)
        channel.queue(
            "q",
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s", "x-message-ttl": 0},
            durable=True,
        )
        for body in ("a", "b" * 20_000, "c"):
            channel.publish(body, "q", delivery_mode=2)
        assert read(client, "s", count=3) == [(0, b"a"), (1, b"b" * 20_000), (2, b"c")]
        client.close()


def test_the_listings(tmp_path):
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", STREAM, durable=True)
        publish(client, "s", ["abc"] * 10)
        channel = client.channel()
        channel.qos(3)
        channel.consume("s", "reader", arguments={"x-stream-offset": "first"})
        channel.deliveries(3)
        items = broker.queue("s")
        assert (items.messages, items.messages_ready, items.messages_unacknowledged) == (10, 10, 0)
        assert (items.consumers, items.message_bytes, items.first_number, items.next_number) == (1, 30, 0, 10)
        channel.send(m.BasicAck(3, multiple=True))
        channel.deliveries(3)
        client.close()


def test_a_damaged_file_costs_its_messages_alone(tmp_path):
    """Damage in a file loses only the messages there: consumers go on after it, and retention still removes
    the rest.
    """
    arguments = {**STREAM, "x-stream-max-segment-size-bytes": 1000}
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        client.channel().queue("s", arguments, durable=True)
        for part in range(3):  # a run of 32 KiB and more is a block of its own in the file
            publish(client, "s", [b"%d" % part * 1000] * 100)
        client.close()
    [file] = tmp_path.glob("vhosts/*/queues/*/0.idx")
    content = bytearray(file.read_bytes())
    at = content.index(b"1" * 1000)
    content[at : at + 10] = b"x" * 10
    file.write_bytes(content)
    for path in tmp_path.glob("vhosts/*/recovery/*"):
        path.unlink()  # a kill leaves this file out
    with Broker(port=0, data_dir=tmp_path) as broker:
        client = Client(broker.url)
        left = client.channel().ready("s")
        assert 100 < left < 300
        found = read(client, "s", count=left)
        assert [number for number, body in found] == sorted(number for number, _ in found)
        assert all(body == b"%d" % (number // 100) * 1000 for number, body in found)
        publish(client, "s", ["new"])
        next_offset, body = read(client, "s", "last")[0]
        assert body == b"new"
        broker.set_policy("p", "s", {"max-length-bytes": 100}, apply_to="queues")
        deadline = time.monotonic() + 300
        while client.channel().ready("s") > 1:
            assert time.monotonic() < deadline
        assert first_offset(client, "s") == next_offset
        client.close()
