"""Range reading with pika, against a broker in memory and one on a data directory.

Also orderly restarts, kill -9, and clients that do not read.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pika
import pytest

from warren import Broker
from warren.amqp.fields import table_from
from warren.amqp.frames import content_body
from warren.amqp.methods import BasicCancel, BasicConsume, BasicConsumeOk, BasicDeliver, QueueDeclare, QueueDeclareOk
from warren.amqp.properties import decode_properties
from warren.tests.behaviour.inside import Inside
from warren.tests.store.block_twin import read_block

from ..oracle import ORACLE
from ..wire import CAPABILITIES, Wire, publish_frames

pytestmark = pytest.mark.skipif(bool(ORACLE), reason="no other broker has it")

PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"kept": "yes"})


@pytest.fixture(params=["memory", "disk"])
def local(request, tmp_path):
    with Broker(port=0, **({"data_dir": str(tmp_path / "data")} if request.param == "disk" else {})) as broker:
        yield broker


@pytest.fixture
def channel(local):
    with pika.BlockingConnection(pika.URLParameters(local.url)) as connection:
        yield connection.channel()


def publish(channel, bodies, queue="q"):
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT)


def numbered(first, stop, size=0):
    return [b"%d" % number + b"." * size for number in range(first, stop)]


def read(channel, queue="q", ack=False, count=None, **arguments):
    """The `(number, body)` pairs of a range, until it ends or `count` have come."""
    got = []
    for method, properties, body in channel.consume(
        queue,
        auto_ack=not ack,
        arguments={f"x-warren-{key.replace('_', '-')}": value for key, value in arguments.items()},
    ):
        got.append((properties.headers.get("x-warren-seq"), body))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    channel.cancel()
    return got


def bounds(channel, queue="q", **arguments):
    ((_, properties, _),) = channel.consume(queue, auto_ack=True, arguments={"x-warren-bounds": True, **arguments})
    return properties.headers["x-warren-first"], properties.headers["x-warren-next"]


def test_a_range_is_read_as_often_as_wanted_then_committed(channel, local):
    """A client that reads a range without committing it may read it again as often as it wants, and then commit it."""
    channel.queue_declare("q", durable=True)
    publish(channel, numbered(0, 500))
    for _ in range(3):
        assert read(channel, read_from=100, read_to=349) == list(enumerate(numbered(0, 500)))[100:350]
    assert read(channel, ack_to=349) == read(channel, ack_to=349) == []
    assert bounds(channel) == (350, 500)
    info = local.queue("q")
    assert (info.messages, info.first_number, info.next_number, info.consumers) == (150, 350, 500, 0)
    assert channel.queue_declare("q", passive=True).method.message_count == 150


def test_own_headers_are_there_beside_the_number(channel):
    channel.queue_declare("q", durable=True)
    publish(channel, [b"body"])
    ((method, properties, body),) = channel.consume(
        "q", auto_ack=True, arguments={"x-warren-read-from": 0, "x-warren-read-to": 0}
    )
    assert (method.routing_key, method.redelivered, body) == ("q", False, b"body")
    assert (properties.headers, properties.delivery_mode) == ({"kept": "yes", "x-warren-seq": 0}, 2)
    method, properties, body = channel.basic_get("q")
    assert (method.redelivered, properties.headers) == (False, {"kept": "yes"}), "nothing of it stays"


@pytest.mark.parametrize("prefetch", [1, 10, 0])
def test_tailing_with_acknowledgements_while_others_consume(channel, local, prefetch):
    channel.queue_declare("q", durable=True)
    publish(channel, numbered(0, 30))
    with pika.BlockingConnection(pika.URLParameters(local.url)) as other:
        consuming = other.channel()
        taken = []
        consuming.basic_consume("q", lambda ch, method, properties, body: taken.append(body), auto_ack=False)
        other.process_data_events(0.2)
        channel.basic_qos(prefetch_count=prefetch)
        assert read(channel, ack=True, count=20, read_from=10) == list(enumerate(numbered(0, 30)))[10:]
        publish(channel, numbered(30, 40))
        assert read(channel, ack=True, read_from=25, read_to=39) == list(enumerate(numbered(0, 40)))[25:]
        while len(taken) < 40:
            other.process_data_events(0.05)
        assert taken == numbered(0, 40)


@pytest.mark.parametrize("size", [0, 5000])
def test_a_lazy_backlog_is_browsed_while_it_is_drained(channel, local, size):
    count = 3000
    channel.queue_declare("q", durable=True, arguments={"x-queue-mode": "lazy"})
    bodies = numbered(0, count, size)
    publish(channel, bodies)
    assert [number for number, _ in read(channel, read_from=-10, read_to="last")] == list(range(count - 10, count))
    with pika.BlockingConnection(pika.URLParameters(local.url)) as other:
        draining = other.channel()
        draining.basic_qos(prefetch_count=100)
        for drained, (method, _, body) in enumerate(draining.consume("q"), 1):
            assert body == bodies[drained - 1]
            draining.basic_ack(method.delivery_tag)
            if drained == 500:
                assert read(channel, read_from=1000, read_to="last") == list(enumerate(bodies))[1000:]
            if drained == count:
                break
        draining.cancel()
    assert bounds(channel) == (count, count)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (
            {"x-warren-read-from": 1, "x-warren-read-to": 4},
            "numbers 1 to 4 of queue 'q' in vhost '/' cannot be read: the queue holds only numbers 3 to 9",
        ),
        (
            {"x-warren-read-from": 5, "x-warren-read-to": 4},
            (
                "numbers 5 to 4 of queue 'q' in vhost '/': the range ends before it begins; "
                "to read one number, set both ends to it"
            ),
        ),
        (
            {"x-warren-ack-to": 10},
            (
                "cannot acknowledge up to 10 of queue 'q' in vhost '/': "
                "no message has that number yet, the next will be 10"
            ),
        ),
        (
            {"x-warren-read-to": "first"},
            "invalid arg 'x-warren-read-to' for queue 'q' in vhost '/': \"expected a number or 'last', got 'first'\"",
        ),
    ],
)
def test_what_cannot_be_is_refused_on_the_channel(channel, arguments, text):
    channel.queue_declare("q", durable=True)
    publish(channel, numbered(0, 10))
    read(channel, ack_to=2)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume("q", lambda *_: None, auto_ack=True, arguments=arguments)
    assert (caught.value.reply_code, caught.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def read_blocks(channel, queue="q", **arguments):
    """The messages of a range that is read in blocks, and how many deliveries that took. The blocks adjoin."""
    messages, blocks, at = [], 0, None
    arguments = {f"x-warren-{key.replace('_', '-')}": value for key, value in {"blocks": 65_536, **arguments}.items()}
    for _, properties, body in channel.consume(queue, auto_ack=True, arguments=arguments):
        block = read_block(body)
        assert (block.first, block.next) == (properties.headers["x-warren-seq"], properties.headers["x-warren-next"])
        assert at in (None, block.first)
        at = block.next
        messages += block.messages
        blocks += 1
    return messages, blocks


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_blocks_have_what_single_deliveries_have(channel, local, mode):
    """Blocks have the same messages as single deliveries: bodies in the index, in the message stores and in several
    frames, with and without properties of their own, from memory and from the disk.
    """
    assert set(channel.connection._impl.server_properties["warren_features"]) >= {"read-blocks", "queue-id"}
    channel.queue_declare("q", durable=True, arguments={"x-queue-mode": mode})
    before = time.time()
    bodies = [b"%d" % number * (1 + number % 400) for number in range(1500)]
    bodies[100:1500:300] = [bytes(size) for size in (5_000, 200_000, 0, 4_096, 60_000)]
    for number, body in enumerate(bodies):
        id_ = f"id{number}" if 200 <= number < 700 else None
        properties = pika.BasicProperties(delivery_mode=1 + number % 2, message_id=id_, priority=number // 500)
        channel.basic_publish("", "q", body, properties)
    channel.basic_get("q")
    plain = [
        (properties.headers["x-warren-seq"], method.redelivered, properties.message_id, body)
        for method, properties, body in channel.consume(
            "q", auto_ack=True, arguments={"x-warren-read-from": 0, "x-warren-read-to": "last"}
        )
    ]
    assert [body for *_, body in plain] == bodies
    messages, blocks = read_blocks(channel, read_from=0, read_to="last")
    assert [
        (
            message.number,
            message.redelivered,
            decode_properties(message.properties).message_id,
            content_body(message.content),
        )
        for message in messages
    ] == plain
    assert 5 < blocks < 300
    assert {(message.exchange, message.routing_keys) for message in messages} == {("", ("q",))}
    assert [message.persistent for message in messages] == [bool(number % 2) for number in range(1500)]
    times = [message.arrived for message in messages]
    assert times == sorted(times) and before <= times[0] / 1e6 <= times[-1] / 1e6 <= time.time()


@pytest.mark.parametrize(
    "arguments, text",
    [
        (
            {"x-warren-blocks": 100, "x-warren-read-from": 0},
            (
                "invalid arg 'x-warren-blocks' for queue 'q' in vhost '/': "
                '"expected true or a number of bytes from 65536 to 16777216, got 100"'
            ),
        ),
        (
            {"x-warren-blocks": True},
            (
                "invalid arguments of a consumer of queue 'q' in vhost '/': "
                "'x-warren-blocks' is only for a reader with 'x-warren-read-from' or 'x-warren-read-to'"
            ),
        ),
        (
            {"x-warren-headers-only": True, "x-warren-read-from": 0},
            (
                "invalid arguments of a consumer of queue 'q' in vhost '/': "
                "'x-warren-headers-only' is only for a reader with 'x-warren-blocks'"
            ),
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(channel, arguments, text):
    channel.queue_declare("q", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume("q", lambda *_: None, auto_ack=True, arguments=arguments)
    assert (caught.value.reply_code, caught.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize("end", ["crash", "delete"])
def test_a_queue_that_crashes_or_goes_cancels_its_readers(channel, local, end):
    """A reader is cancelled whatever its arguments, since consuming again would begin its range anew."""
    channel.queue_declare("q", durable=True)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.basic_consume(
        "q", lambda *_: None, auto_ack=True, consumer_tag="reader", arguments={"x-warren-read-from": "next"}
    )
    if end == "crash":
        Inside(local).crash("q")
    else:
        local.delete_queue("q")
    for _ in range(100):
        channel.connection.process_data_events(0.05)
        if cancelled:
            break
    assert cancelled == ["reader"]
    assert local.consumers() == []


def test_a_reader_that_does_not_read_costs_a_batch(local):
    """A reader that does not read from its socket costs the memory of one batch, because output is bounded as for any
    consumer; publishers and other consumers go on.
    """
    with Wire.open((local.host, local.port)) as stalled, Wire.open((local.host, local.port)) as wire:
        for each in (stalled, wire):
            each.open_channel(1)
        wire.call(1, QueueDeclare(queue="q", durable=True), QueueDeclareOk)
        for _ in range(20):
            wire.send(*[publish_frames(1, bytes(10_000), "q", frame_max=wire.frame_max) for _ in range(100)])
        stalled.call(
            1,
            BasicConsume(queue="q", consumer_tag="r", no_ack=True, arguments=table_from({"x-warren-read-from": 0})),
            BasicConsumeOk,
        )
        inside = Inside(local)
        queue = inside.queue("q")
        (reader,) = queue.role.range_readers.readers.values()
        before = None
        while (
            now := inside.call(lambda: (reader.consumer.channel.unsent, len(reader.buffer), reader.position))
        ) != before:
            before = now
            time.sleep(0.2)
        # The limit is 400 until the queue has seen how large the messages are, and 200 from then on.
        assert now[0] in (200, 400) and now[1] <= 256 and now[2] < 1900
        wire.call(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True), BasicConsumeOk)
        for _ in range(2000):
            wire.method(1, BasicDeliver)
            wire.content(1)


def test_a_client_that_knows_no_cancel_is_not_told_of_the_end(local):
    without = {name: on for name, on in CAPABILITIES.items() if name != "consumer_cancel_notify"}
    for capabilities, is_told in ((CAPABILITIES, True), (without, False)):
        with Wire.open((local.host, local.port), capabilities=capabilities) as wire:
            wire.open_channel(1)
            wire.call(1, QueueDeclare(queue="q"), QueueDeclareOk)
            wire.call(
                1,
                BasicConsume(queue="q", consumer_tag="r", no_ack=True, arguments=table_from({"x-warren-bounds": True})),
                BasicConsumeOk,
            )
            wire.method(1, BasicDeliver)
            wire.content(1)
            if is_told:
                assert wire.method(1, BasicCancel) == BasicCancel("r", True)
            wire.call(1, QueueDeclare(queue="q"), QueueDeclareOk)


PROGRAM = """
import json, sys
from warren import Broker
with Broker(port=0, **json.loads(sys.argv[1])) as broker:
    print(broker.url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_numbers_and_commits_survive_a_restart(tmp_path, is_killed):
    """A committed range stays committed, other messages are read again by the same numbers, no number is used twice.

    After a kill there may be a gap.
    """
    given = 0
    for life in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps({"data_dir": str(tmp_path / "data")})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        connection = pika.BlockingConnection(pika.URLParameters(process.stdout.readline().strip()))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        first, following = bounds(channel)
        assert first == max(0, given - 50)
        assert following >= given if is_killed and life else following == given
        assert read(channel, read_from=first, read_to="last") == [
            (number, b"%d" % number) for number in range(first, given)
        ]
        publish(channel, numbered(following, following + 99))
        assert read(channel, ack_to=following + 49) == []
        # A confirm means that the journal has all earlier messages.
        publish(channel, numbered(following + 99, following + 100))
        given = following + 100
        if is_killed:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        else:
            connection.close()
            process.communicate()
