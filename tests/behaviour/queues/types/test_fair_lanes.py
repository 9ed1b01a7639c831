"""Queues with fair lanes as clients see them (QP-66 to QP-71), in memory and on a disk. RabbitMQ has none."""

import os

import pytest

from warren import Broker
from warren.amqp import methods as m

from ...inside import Inside
from ...wire import Client, table

if "WARREN_TEST_URL" in os.environ:
    pytest.skip("other brokers have no fair lanes", allow_module_level=True)

BY_SHOP = {"x-fair-by": "header:shop"}


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    data_dir = str(tmp_path_factory.mktemp("lanes") / "data") if request.param == "disk" else False
    with Broker(port=0, data_dir=data_dir, stop_timeout=100) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker):
    return broker.url


@pytest.fixture
def connect(url, connect):
    return lambda: connect(to=url)


def publish(channel, queue, shops, start=0, size=0, **properties):
    """Publish a message for each shop, whose body is its shop and number."""
    for number, shop in enumerate(shops, start):
        channel.publish(f"{shop}{number}".ljust(size), queue, headers={"shop": shop}, **properties)


def shops(bodies):
    return "".join(chr(body[0]) for body in bodies)


def test_shops_take_turns(channel, name):
    """Deliveries go to the lanes in turn, by basic.get and to a consumer, and acknowledged messages are gone."""
    queue = channel.queue(name, BY_SHOP, durable=True)
    publish(channel, queue, "aaaabbc")
    channel.expect_ready(queue, 7)
    assert [channel.get(queue, no_ack=True).body for _ in range(3)] == [b"a0", b"b4", b"c6"]
    channel.consume(queue)
    assert channel.bodies(4) == [b"a1", b"b5", b"a2", b"a3"]
    channel.ack(0, multiple=True)
    channel.expect_ready(queue, 0)


@pytest.mark.parametrize(
    ("source", "expected"), [("routing-key", "aba"), ("exchange", "aba"), ("user", "aba"), ("header:none", "aab")]
)
def test_what_decides_about_the_lane(channel, name, source, expected):
    queue = channel.queue(name, {"x-fair-by": source})
    for exchange in ("a", "b"):
        channel.exchange(f"{name} {exchange}", "fanout")
        channel.bind(queue, f"{name} {exchange}")
    for shop in "aab":
        user = {"user_id": "guest"} if shop == "b" else {}
        channel.publish(shop, f"key {shop}", f"{name} {shop}", **user)
    channel.expect_ready(queue, 3)
    assert shops(channel.get_all(queue)) == expected


def test_a_redelivered_message_is_the_next_of_its_lane(channel, name):
    queue = channel.queue(name, BY_SHOP)
    publish(channel, queue, "aab")
    channel.expect_ready(queue, 3)
    channel.nack(channel.get(queue).tag)
    channel.expect_ready(queue, 3)
    assert channel.get_all(queue) == [b"b2", b"a0", b"a1"]


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_full_queue_drops_from_the_longest_lane(channel, name, dead_letters):
    dead = channel.queue(f"{name} dead")
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead} if dead_letters else {}
    queue = channel.queue(name, {**BY_SHOP, "x-max-length": 4, **to_dead})
    publish(channel, queue, "baaaaaa")
    if dead_letters:
        channel.expect_ready(dead, 3)
        assert channel.get_all(dead) == [b"a1", b"a2", b"a3"]
    channel.expect_ready(queue, 4)
    assert channel.get_all(queue) == [b"b0", b"a4", b"a5", b"a6"]


def test_each_lane_may_have_a_limit(channel, name):
    """The limit of a lane has the overflow behaviour of the queue, drop-head by default."""
    queue = channel.queue(name, {**BY_SHOP, "x-fair-lane-max-length": 2})
    publish(channel, queue, "aaabb")
    channel.expect_ready(queue, 4)
    assert channel.get_all(queue) == [b"a1", b"b3", b"a2", b"b4"]


def test_a_full_lane_refuses_publishes_and_another_takes_them(channel, name):
    queue = channel.queue(name, {**BY_SHOP, "x-fair-lane-max-length": 2, "x-overflow": "reject-publish"})
    channel.confirm()
    publish(channel, queue, "aaabb")
    assert channel.confirms(1, 5) == ([1, 2, 4, 5], [3])
    assert channel.get_all(queue) == [b"a0", b"b3", b"a1", b"b4"]


def test_messages_expire_at_the_head_of_each_lane(channel, name):
    dead = channel.queue(f"{name} dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = channel.queue(name, {**BY_SHOP, **arguments})
    publish(channel, queue, "ab")
    publish(channel, queue, "c", expiration="1")
    channel.expect_ready(dead, 1)
    assert channel.get_all(queue) == [b"a0", b"b1"]


def test_policies_change_weights_and_batches_at_once(broker, inside, channel, name):
    queue = channel.queue(name, BY_SHOP)
    publish(channel, queue, "aaaabbbb")
    channel.expect_ready(queue, 8)
    broker.set_policy(name, f"^{name}$", {"fair-weight": {"a": 2}}, apply_to="queues")
    inside.await_settings(queue, lambda settings: settings.fair_weight == {"a": 2})
    try:
        assert shops(channel.get_all(queue)) == "aabaabbb"
    finally:
        broker.clear_policy(name)


def test_lanes_are_listed(inside, channel, name):
    queue = channel.queue(name, BY_SHOP)
    publish(channel, queue, "abb")
    channel.expect_ready(queue, 3)
    lanes = inside.call(lambda: inside.queue(queue).on_info(None)["lanes"])
    assert [(lane["lane"], lane["length"]) for lane in lanes] == [("b", 2), ("a", 1)]


def test_thousands_of_lanes_take_turns(channel, name):
    """5,000 shops with two messages each, of which one floods the queue first: each shop has its turn in each round
    (QP-66, QP-68). Messages come back to the head of their lane, and the others go on.
    """
    queue = channel.queue(name, {**BY_SHOP, "x-fair-lanes-max": 65536}, durable=True)
    channel.confirm()
    lanes = 5000
    order = [0] * 1000 + [*range(1, lanes)] * 2
    for number, shop in enumerate(order):
        channel.publish(f"{shop} {number}", queue, headers={"shop": f"shop {shop}"}, delivery_mode=2)
    channel.confirms(1, len(order))
    channel.qos(lanes)
    channel.consume(queue)
    first = channel.bodies(lanes)
    assert sorted(int(body.split()[0]) for body in first) == [*range(lanes)]
    channel.nack(0, multiple=True)
    again = channel.bodies(lanes)
    assert sorted(again) == sorted(first)
    channel.ack(0, multiple=True)
    second = channel.bodies(lanes)
    assert sorted(int(body.split()[0]) for body in second) == [*range(lanes)]
    assert not {*first} & {*second}
    channel.ack(0, multiple=True)
    rest = channel.bodies(998)
    assert [int(body.split()[1]) for body in rest] == [*range(2, 1000)]
    channel.ack(0, multiple=True)
    channel.expect_ready(queue, 0)


def test_a_queue_has_1024_lanes_by_default(inside, channel, name):
    """QP-66."""
    queue = channel.queue(name, BY_SHOP)
    assert inside.call(lambda: inside.queue(queue).settings.fair_lanes) == 1024


def test_more_values_than_lanes_share_them(channel, name):
    """With fewer lanes than values each value keeps its order, and no value waits for all others (QP-69)."""
    queue = channel.queue(name, {**BY_SHOP, "x-fair-lanes-max": 3})
    publish(channel, queue, "aaaaaaaa" + "bcdefgh" * 2)
    channel.expect_ready(queue, 22)
    found = channel.get_all(queue)
    for shop in b"abcdefgh":
        numbers = [int(body[1:]) for body in found if body[0] == shop]
        assert numbers == sorted(numbers) and len(numbers) == (8 if shop == ord("a") else 2)
    assert {chr(body[0]) for body in found[:3]} >= {"a", "b", "c"}


@pytest.mark.parametrize(
    ("arguments", "key", "reason"),
    [
        (
            {"x-fair-by": "shop"},
            "x-fair-by",
            "\"expected 'routing-key', 'exchange', 'user' or 'header:NAME', got 'shop'\"",
        ),
        (
            {**BY_SHOP, "x-max-priority": 3},
            "x-fair-by",
            "\"a queue has either priorities or fair lanes; leave out 'x-max-priority' or 'x-fair-by'\"",
        ),
        ({**BY_SHOP, "x-fair-lanes-max": 0}, "x-fair-lanes-max", '"expected a number from 1 to 65536, got 0"'),
        ({**BY_SHOP, "x-fair-lanes-max": 65537}, "x-fair-lanes-max", '"expected a number from 1 to 65536, got 65537"'),
        ({**BY_SHOP, "x-fair-batch": 0}, "x-fair-batch", '"expected a number from 1 on, got 0"'),
        ({**BY_SHOP, "x-fair-weight": {"a": 0}}, "x-fair-weight", "\"the weight of 'a' must be an integer from 1 on\""),
        ({**BY_SHOP, "x-fair-cost": "weight"}, "x-fair-cost", "\"expected 'message' or 'bytes', got 'weight'\""),
    ],
)
def test_arguments_that_make_no_sense_are_refused(channel, name, arguments, key, reason):
    text = f"invalid arg '{key}' for queue '{name}' in vhost '/': {reason}"
    channel.refuses(406, text, m.QueueDeclare(queue=name, arguments=table(arguments)))


def test_drop_lowest_spares_the_urgent_messages(channel, name):
    """With `drop-lowest` a flood of unimportant messages pushes out its own oldest ones; without the argument it pushes
    out urgent ones (QP-63).
    """
    queue = channel.queue(name, {"x-max-priority": 2, "x-max-length": 3, "x-drop-lowest": True})
    channel.publish("urgent", queue, priority=2)
    for number in range(4):
        channel.publish(str(number), queue)
    channel.expect_ready(queue, 3)
    assert channel.get_all(queue) == [b"urgent", b"2", b"3"]


@pytest.mark.parametrize("size", [10, 6000], ids=["embedded", "stored"])
def test_lanes_survive_a_restart_and_keep_their_order(tmp_path, size):
    """After a restart of a lazy queue with three shops, of which one floods it, each shop goes on where it was, and its
    new messages come after its old ones.
    """
    arguments = {**BY_SHOP, "x-queue-mode": "lazy"}
    persistent = {"delivery_mode": 2, "size": size}
    flood = 300
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("q", arguments, durable=True)
        channel.confirm()
        publish(channel, "q", "a" * flood + "bbcc", **persistent)
        channel.confirms(1, flood + 4)
        client.close()
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("q", arguments, durable=True)
        channel.confirm()
        publish(channel, "q", "abcd", start=1000, **persistent)
        channel.confirms(1, 4)
        inside = Inside(broker)
        while inside.call(lambda: inside.queue("q").backing.is_behind):
            channel.ready("q")  # the queue still sorts its messages into lanes
        bodies = [event.body.strip().decode() for event in channel.take("q", flood + 8)]
        client.close()
    assert sorted("".join(body[0] for body in bodies[:4])) == ["a", "b", "c", "d"]
    for shop, count in (("a", flood + 1), ("b", 3), ("c", 3), ("d", 1)):
        numbers = [int(body[1:]) for body in bodies if body[0] == shop]
        assert len(numbers) == count
        assert numbers == sorted(numbers)
