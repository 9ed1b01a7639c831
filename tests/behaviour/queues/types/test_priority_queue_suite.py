"""priority_queue_SUITE: a test for each case (AB-104, queue-and-store section 12.4), in memory and on a disk.

There is none for `unknown_info_key`, because warren asks a backing queue for no item by name.
"""

import os

import pytest

from warren import Broker
from warren.amqp import methods as m

from ...wire import table


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    """A broker for this module instead of the session's; None if the tests run against another broker."""
    if "WARREN_TEST_URL" in os.environ:
        if request.param == "disk":
            pytest.skip("the tested broker chooses its disk itself")
        yield None
        return
    data_dir = str(tmp_path_factory.mktemp("priorities") / "data") if request.param == "disk" else False
    with Broker(port=0, data_dir=data_dir, stop_timeout=100) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker):
    return broker.url if broker else os.environ["WARREN_TEST_URL"]


@pytest.fixture
def connect(url, connect):
    """Connects to this module's broker."""
    return lambda: connect(to=url)


@pytest.fixture
def queue(channel, name):
    """A queue of three levels above 0."""
    return channel.queue(name, {"x-max-priority": 3}, durable=True)


def publish(channel, queue, *priorities):
    """Publish a message for each priority; its body is its number and priority, such as `0:1`."""
    for number, priority in enumerate(priorities):
        channel.publish(f"{number}:{priority}", queue, priority=priority)


def priorities(bodies):
    return [int(body.split(b":")[1]) for body in bodies]


@pytest.mark.parametrize("no_ack", [True, False])
def test_simple_order(channel, queue, no_ack):
    """QP-62, QP-65: basic.get takes messages by priority, and those of one priority first in, first out (AB-104)."""
    for wanted in ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3, 1, 2, 3, 1, 2, 3)):
        publish(channel, queue, *wanted)
        channel.expect_ready(queue, len(wanted))
        events = [channel.get(queue, no_ack=no_ack) for _ in wanted]
        assert [event.method.message_count for event in events] == list(range(len(wanted) - 1, -1, -1))
        bodies = [event.body for event in events]
        assert priorities(bodies) == sorted(wanted, reverse=True)
        assert bodies == sorted(bodies, key=lambda body: (-int(body.split(b":")[1]), int(body.split(b":")[0])))
        channel.ack(0, multiple=True)


def test_matching(channel, name):
    """QP-62: a priority above the maximum counts as the maximum, an absent one as 0; the property stays as it was
    (AB-104).
    """
    queue = channel.queue(name, {"x-max-priority": 5})
    for body, priority in (("a", 5), ("b", 10), ("c", None), ("d", 0), ("e", 255)):
        channel.publish(body, queue, priority=priority)
    channel.expect_ready(queue, 5)
    events = [channel.get(queue) for _ in range(5)]
    assert [event.body for event in events] == [b"a", b"b", b"e", b"c", b"d"]
    assert [event.properties.priority for event in events] == [5, 10, 255, None, 0]


def test_resume(channel, queue):
    """FC-39: 10,000 publishes are confirmed, so credit returns to a queue with many levels; purge removes them all
    (AB-104).

    A quarter has bodies that go to the message store.
    """
    channel.confirm()
    for start in range(0, 10_000, 1000):
        with channel.client.in_one_piece():
            for number in range(1000):
                channel.publish("x" * (5000 if number % 4 == 2 else 1), queue, priority=number % 4, delivery_mode=2)
        assert len(channel.confirms(start + 1, start + 1000)[0]) == 1000
    assert channel.purge(queue) == 10_000


@pytest.mark.parametrize("no_ack", [True, False])
def test_straight_through(channel, queue, no_ack):
    """A message for a waiting consumer goes straight to it, whatever its priority (AB-123)."""
    channel.consume(queue, no_ack=no_ack)
    for priority in (1, 3, 0, 2):
        channel.publish(str(priority), queue, priority=priority)
        event = channel.delivery()
        assert (event.body, event.method.redelivered) == (str(priority).encode(), False)
        if not no_ack:
            channel.ack(event.tag)
    assert channel.get(queue) is None


@pytest.mark.parametrize("dead_letters", [False, True])
def test_dropwhile_fetchwhile(channel, name, dead_letters):
    """Queue TTL empties all levels, with and without dead-letter exchange (AB-95, AB-104)."""
    dead = channel.queue(f"{name}-dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead} if dead_letters else {}
    queue = channel.queue(name, {"x-max-priority": 3, "x-message-ttl": 20, **arguments})
    publish(channel, queue, 1, 2, 3, 1, 2, 3, 1, 2, 3)
    if dead_letters:
        assert len(channel.take(dead, 9)) == 9
    channel.expect_ready(queue, 0)


def test_ackfold(channel, name):
    """Multiple reject dead-letters the highest priority first (AB-136)."""
    dead = channel.queue(f"{name}-dead")
    queue = channel.queue(name, {"x-max-priority": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    publish(channel, queue, 1, 2, 3)
    channel.expect_ready(queue, 3)
    for _ in range(3):
        last = channel.get(queue)
    channel.nack(last.tag, multiple=True, requeue=False)
    assert priorities(event.body for event in channel.take(dead, 3)) == [3, 2, 1]


def test_requeue(channel, queue):
    """Multiple requeue restores the order (AB-134)."""
    publish(channel, queue, 1, 2, 3, 2)
    channel.expect_ready(queue, 4)
    for _ in range(4):
        last = channel.get(queue)
    channel.nack(last.tag, multiple=True, requeue=True)
    assert channel.get_all(queue) == [b"2:3", b"1:2", b"3:2", b"0:1"]


def test_requeue_one_by_one(channel, queue):
    """QP-62: each returns to its place in its own level (AB-104), in front of what came later."""
    publish(channel, queue, 1, 2, 3, 2)
    channel.expect_ready(queue, 4)
    tags = [channel.get(queue).tag for _ in range(4)]
    channel.publish("4:2", queue, priority=2)
    for tag in (tags[2], tags[3], tags[1]):
        channel.nack(tag, requeue=True)
    assert channel.get_all(queue) == [b"1:2", b"3:2", b"4:2", b"0:1"]


def test_drop(channel, name):
    """With a limit of 4 and the priorities 1, 2, 3 three times, the highest are dropped first, and 2, 1, 1, 1 remain
    (QP-63, AB-104).
    """
    queue = channel.queue(name, {"x-max-priority": 4, "x-max-length": 4})
    publish(channel, queue, 1, 2, 3, 1, 2, 3, 1, 2, 3)
    channel.expect_ready(queue, 4)
    assert priorities(channel.get_all(queue)) == [2, 1, 1, 1]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_reject(channel, name, overflow):
    """With a limit of 4 and reject-publish the first four messages stay (AB-101)."""
    queue = channel.queue(name, {"x-max-priority": 4, "x-max-length": 4, "x-overflow": overflow})
    publish(channel, queue, 1, 2, 3, 1, 2, 3, 1, 2, 3)
    channel.expect_ready(queue, 4)
    assert priorities(channel.get_all(queue)) == [3, 2, 1, 1]


def test_purge(channel, queue):
    """Purge empties all levels (AB-104)."""
    publish(channel, queue, 1, 2, 3)
    channel.expect_ready(queue, 3)
    assert channel.purge(queue) == 3
    assert channel.get(queue) is None


def test_info_head_message_timestamp(channel, inside, queue):
    """CM-152: the timestamp of the head of the highest level that is not empty, unacknowledged messages included
    (AB-176).
    """

    def timestamp():
        return inside.call(lambda: inside.queue(queue).on_info(None)["head_message_timestamp"])

    assert timestamp() == ""
    channel.publish("1", queue, priority=1, timestamp=1000)
    channel.publish("2", queue, priority=2, timestamp=2000)
    channel.expect_ready(queue, 2)
    assert timestamp() == 2000
    held = channel.get(queue)
    assert timestamp() == 2000
    channel.ack(held.tag)
    channel.expect_ready(queue, 1)
    assert timestamp() == 1000
    channel.get(queue, no_ack=True)
    assert timestamp() == ""


def test_gen_server2_stats(inside, channel, queue):
    """AB-177: rates and counts of the queue's process are numbers."""
    info = inside.call(lambda: inside.queue(queue).on_info(None))
    assert all(
        isinstance(info[key], int)
        for key in ("messages", "messages_ready", "messages_unacknowledged", "consumers", "message_bytes")
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [(-10, "{value_negative,-10}"), (256, "{max_value_exceeded,256}")],
    ids=["negative_max_priorities", "max_priorities_above_hard_limit"],
)
def test_max_priority_out_of_range(channel, name, value, reason):
    """QP-61, AB-89: C406 names the bound."""
    text = f"invalid arg 'x-max-priority' for queue '{name}' in vhost '/': {reason}"
    channel.refuses(406, text, m.QueueDeclare(queue=name, arguments=table({"x-max-priority": value})))


def test_ram_duration(inside, channel, queue):
    """Calls for a memory target work on all levels, with a number and without a limit."""
    publish(channel, queue, 1, 2, 3)
    channel.expect_ready(queue, 3)
    durability = inside.queue(queue).durability
    levels = [] if durability is None else list(durability.levels.values())

    def try_all():
        for level in levels:
            level.set_ram_duration_target(0)
        duration = min([level.ram_duration() for level in levels], default=0.0)
        for level in levels:
            level.set_ram_duration_target(float("inf"))
        return duration

    assert inside.call(try_all) >= 0
    assert priorities(channel.get_all(queue)) == [3, 2, 1]
