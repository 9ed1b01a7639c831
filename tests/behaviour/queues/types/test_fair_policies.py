"""Policies that give queues fair lanes, change them, and take them away (QP-66), in memory and on a disk."""

import os

import pytest

from warren import Broker, BrokerError

from ...wire import Client, Refused, plain

if "WARREN_TEST_URL" in os.environ:
    pytest.skip("other brokers have no fair lanes", allow_module_level=True)

BY_SHOP = {"fair-by": "header:shop"}


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


@pytest.fixture
def policy(broker, name):
    """`policy(...)` sets the policy of the test's queue, or clears it."""

    def use(definition):
        if definition is None:
            broker.clear_policy(name)
        else:
            broker.set_policy(name, f"^{name}$", definition, apply_to="queues")

    yield use
    if any(each.name == name for each in broker.policies()):
        broker.clear_policy(name)


def publish(channel, queue, shops, start=0, **properties):
    """Publish a message for each shop, whose body is its shop and number."""
    for number, shop in enumerate(shops, start):
        channel.publish(f"{shop}{number}", queue, headers={"shop": shop}, **properties)


def shops(bodies):
    return "".join(chr(body[0]) for body in bodies)


def test_a_policy_gives_a_queue_lanes(inside, channel, name, policy):
    """When a policy gives a queue lanes, the messages that it has keep a lane of their own, with which later ones take
    turns.
    """
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "aaaa", delivery_mode=2)
    channel.expect_ready(queue, 4)
    policy(BY_SHOP)
    inside.await_settings(queue, lambda settings: settings.fair_by is not None)
    publish(channel, queue, "bbc", start=4, delivery_mode=2)
    channel.expect_ready(queue, 7)
    assert channel.get_all(queue) == [b"a0", b"b4", b"c6", b"a1", b"b5", b"a2", b"a3"]


def test_deliveries_from_before_can_be_settled(channel, name, policy):
    """Ack tags from before stay valid, and a message that comes back is the next one of the old messages' lane."""
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "aaa", delivery_mode=2)
    channel.expect_ready(queue, 3)
    first, second = channel.get(queue), channel.get(queue)
    policy(BY_SHOP)
    publish(channel, queue, "b", start=3, delivery_mode=2)
    channel.ack(first.tag)
    channel.nack(second.tag)
    channel.expect_ready(queue, 3)
    assert sorted(channel.get_all(queue)) == [b"a1", b"a2", b"b3"]
    channel.expect_ready(queue, 0)


def test_consumers_and_confirms_go_on(channel, name, policy):
    queue = channel.queue(name, durable=True)
    channel.confirm()
    channel.consume(queue)
    for number, definition in enumerate((None, BY_SHOP, {"fair-by": "routing-key"}, None)):
        if number:
            policy(definition)
        publish(channel, queue, "abc", start=3 * number, delivery_mode=2)
        assert channel.confirms(3 * number + 1, 3 * number + 3) == ([3 * number + each for each in (1, 2, 3)], [])
        assert len(channel.bodies(3)) == 3
        channel.ack(0, multiple=True)
    channel.expect_ready(queue, 0)


def test_a_queue_that_loses_its_lanes_serves_them_to_the_end(channel, name, policy, inside):
    policy(BY_SHOP)
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "aabb", delivery_mode=2)
    channel.expect_ready(queue, 4)
    policy(None)
    publish(channel, queue, "ccc", start=4, delivery_mode=2)
    channel.expect_ready(queue, 7)
    assert inside.call(lambda: inside.queue(queue).on_info(None)["lanes"]) is not None
    found = channel.get_all(queue)
    assert sorted(found) == [b"a0", b"a1", b"b2", b"b3", b"c4", b"c5", b"c6"]
    for shop in b"abc":
        assert [body for body in found if body[0] == shop] == sorted(body for body in found if body[0] == shop)
    publish(channel, queue, "ab", start=7, delivery_mode=2)
    channel.expect_ready(queue, 2)
    assert inside.call(lambda: inside.queue(queue).on_info(None)["lanes"]) is None
    assert channel.get_all(queue) == [b"a7", b"b8"]


def test_another_value_decides(channel, name, policy):
    policy(BY_SHOP)
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "aa")
    channel.expect_ready(queue, 2)
    policy({"fair-by": "exchange"})
    publish(channel, queue, "bb", start=2)
    channel.expect_ready(queue, 4)
    assert sorted(channel.get_all(queue)) == [b"a0", b"a1", b"b2", b"b3"]


def test_the_number_of_lanes_may_shrink(channel, name, policy):
    """When the number of lanes shrinks, values share the lanes that remain, and each value keeps its order."""
    policy({**BY_SHOP, "fair-lanes-max": 8})
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "abcdef")
    channel.expect_ready(queue, 6)
    policy({**BY_SHOP, "fair-lanes-max": 2})
    publish(channel, queue, "ghijkghijk", start=6)
    channel.expect_ready(queue, 16)
    found = channel.get_all(queue)
    assert sorted(found) == sorted(f"{shop}{at}".encode() for at, shop in enumerate("abcdefghijkghijk"))
    for shop in b"ghijk":
        numbers = [int(body[1:]) for body in found if body[0] == shop]
        assert numbers == sorted(numbers)


def test_priorities_by_declaration_stay(channel, name, policy):
    policy(BY_SHOP)
    queue = channel.queue(name, {"x-max-priority": 3})
    publish(channel, queue, "aab")
    publish(channel, queue, "c", start=3, priority=2)
    channel.expect_ready(queue, 4)
    assert shops(channel.get_all(queue)) == "caab"


def test_a_reader_by_number_is_told_of_the_lanes(channel, name, policy):
    queue = channel.queue(name, durable=True)
    publish(channel, queue, "a", delivery_mode=2)
    channel.expect_ready(queue, 1)
    channel.consume(queue, arguments={"x-warren-read-from": 0})
    assert channel.bodies(1) == [b"a0"]
    policy(BY_SHOP)
    with pytest.raises(Refused) as caught:
        channel.delivery()
    close = caught.value.close
    assert close.reply_code == 406
    assert "cannot be read or acknowledged by number: it has priorities or fair lanes" in plain(close.reply_text)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"fair-by": "shop"}, "should be 'routing-key', 'exchange', 'user' or 'header:NAME'"),
        ({"fair-by": 3}, "3 is not a valid fair-by value"),
        ({"fair-by": "header:"}, "is not a valid fair-by value"),
        ({"fair-by": "user", "fair-lanes-max": 0}, "0 is not a valid number of lanes; should be from 1 to"),
        (
            {"fair-by": "user", "ha-mode": "all"},
            "fair-by and ha-mode cannot be used together: a queue with fair lanes is not mirrored",
        ),
    ],
)
def test_bad_policies_are_refused(broker, name, definition, reason):
    with pytest.raises(BrokerError) as caught:
        broker.set_policy(name, f"^{name}$", definition)
    assert reason in str(caught.value)
    assert not any(each.name == name for each in broker.policies())


@pytest.fixture
def persistent_name(name, inside):
    if inside.node().context.settings.data_dir is None:
        pytest.skip("a queue in memory does not survive its process")
    return name


@pytest.mark.parametrize("loses_lanes", [False, True])
def test_lanes_of_a_policy_survive_a_crash_of_the_queue(channel, persistent_name, policy, inside, loses_lanes):
    """A queue that lost its lanes by a policy and then crashes finds the messages in them, although no setting mentions
    lanes any more.
    """
    name = persistent_name
    policy(BY_SHOP)
    channel.queue(name, durable=True)
    channel.confirm()
    publish(channel, name, "aab", delivery_mode=2)
    assert channel.confirms(1, 3) == ([1, 2, 3], [])
    if loses_lanes:
        policy(None)
    inside.crash(name)
    channel.expect_ready(name, 3)
    publish(channel, name, "c", start=3, delivery_mode=2)
    channel.expect_ready(name, 4)
    found = channel.get_all(name)
    assert sorted(found) == [b"a0", b"a1", b"b2", b"c3"]
    assert found.index(b"a0") < found.index(b"a1")


@pytest.mark.parametrize("size", [10, 6000], ids=["embedded", "stored"])
@pytest.mark.parametrize("loses_lanes", [False, True])
def test_lanes_of_a_policy_survive_restarts(tmp_path, size, loses_lanes):
    """A queue with lanes finds its messages after a restart. After a second one, at which its lanes are empty, it goes
    on with them, or without lanes if the policy is gone.
    """
    for start, had in ((0, 0), (100, 7), (200, 0)):
        with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
            if not start:
                broker.set_policy("fair", "^q$", BY_SHOP, apply_to="queues")
            client = Client(broker.url)
            channel = client.channel()
            channel.queue("q", durable=True)
            channel.expect_ready("q", had)
            channel.confirm()
            for number, shop in enumerate("aaaabbc", start):
                body = f"{shop}{number}".ljust(size)
                channel.publish(body, "q", headers={"shop": shop}, delivery_mode=2)
            channel.confirms(1, 7)
            if not start and loses_lanes:
                broker.clear_policy("fair")
            if start:
                found = [body.decode().strip() for body in channel.get_all("q")]
                for shop, count in (("a", 4), ("b", 2), ("c", 1)):
                    numbers = [int(body[1:]) for body in found if body[0] == shop]
                    assert len(numbers) == count * (2 if had else 1)
                    assert sorted(numbers) == sorted(set(numbers))
                    if not loses_lanes:
                        assert numbers == sorted(numbers)
                if not loses_lanes:
                    assert sorted(body[0] for body in found[:3]) == ["a", "b", "c"]
            client.close()


@pytest.mark.parametrize("ends", ["stop", "kill"])
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_lanes_that_come_back_lose_nothing(tmp_path, mode, ends):
    """A lane that comes back goes on with its earlier numbers. Journal and segments may still have records for these,
    and a start would otherwise take the acknowledgements of old messages for those of new ones.
    """
    fair = {**BY_SHOP, "queue-mode": mode}
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("q", durable=True)
        channel.confirm()
        number = 0
        for turn in range(4):
            broker.set_policy("fair", "^q$", fair, apply_to="queues")
            publish(channel, "q", "abcabc", start=number, delivery_mode=2)
            channel.confirms(number + 1, number + 6)
            number += 6
            if turn < 3:
                kept = [channel.get("q") for _ in range(6)]
                channel.ack(kept[-1].tag, multiple=True)
                channel.expect_ready("q", 0)
                broker.set_policy("fair", "^q$", {"queue-mode": mode}, apply_to="queues")
                channel.expect_ready("q", 0)
        client.close()
        if ends == "kill":
            broker.kill()
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        found = sorted(event.body.decode() for event in channel.take("q", 6))
        client.close()
    assert found == ["a18", "a21", "b19", "b22", "c20", "c23"]
