"""Group queues as clients see them (QP-75 to QP-80), in memory and on a disk. RabbitMQ has none."""

import os

import pytest

from warren import Broker
from warren.amqp import methods as m

from ...inside import Inside
from ...wire import Client, Refused, table

if "WARREN_TEST_URL" in os.environ:
    pytest.skip("other brokers have no group queues", allow_module_level=True)


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    data_dir = str(tmp_path_factory.mktemp("groups") / "data") if request.param == "disk" else False
    with Broker(port=0, data_dir=data_dir, stop_timeout=100) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker):
    return broker.url


@pytest.fixture
def connect(url, connect):
    return lambda: connect(to=url)


@pytest.fixture
def members(channel, name):
    """The names of three queues, which end in `a`, `b` and `c`."""
    return [channel.queue(f"{name} {letter}", durable=True) for letter in "abc"]


def group(channel, name, **arguments):
    given = {"x-queue-type": "group", **{f"x-group-{key.replace('_', '-')}": value for key, value in arguments.items()}}
    return channel.queue(name, given, durable=True)


def fill(channel, members, letters):
    """Publish a message for each letter to the queue of that letter; its body is the letter and a number."""
    counts = {}
    for number, letter in enumerate(letters):
        queue = next(member for member in members if member.endswith(letter))
        channel.publish(f"{letter}{number}", queue, delivery_mode=2)
        counts[queue] = counts.get(queue, 0) + 1
    for queue, count in counts.items():
        channel.expect_ready(queue, count)


def letters(bodies):
    return "".join(chr(body[0]) for body in bodies)


def consumed(channel, queue, count, prefetch=1):
    """The letters of `count` messages, acknowledged one by one."""
    channel.qos(prefetch)
    channel.consume(queue)
    found = []
    for _ in range(count):
        event = channel.delivery()
        found.append(event.body)
        channel.ack(event.tag)
    return letters(found)


def test_a_fair_group_lets_its_members_take_turns(channel, name, members):
    queue = group(channel, name, members=members)
    fill(channel, members, "aaaaabbc")
    found = consumed(channel, queue, 8)
    # The first offer that reaches the group queue is granted before the other offers are known.
    assert sorted(found) == sorted("aaaaabbc")
    assert sorted(found[1:4]) in (["a", "b", "c"], ["a", "b", "b"], ["a", "a", "b"]), found
    for member in members:
        channel.expect_ready(member, 0)


def test_hundreds_of_members_take_turns(channel, name):
    """A group queue over hundreds of queues, one for each tenant, gives each its turns (QP-68)."""
    shops = [channel.queue(f"{name}-{number:03}") for number in range(300)]
    for _ in range(2000):
        channel.publish("f", shops[0])
    for shop in shops[1:]:
        channel.publish("s", shop)
    channel.expect_ready(shops[0], 2000)
    channel.expect_ready(shops[-1], 1)
    queue = group(channel, f"group {name}", pattern=f"^{name}-")
    found = consumed(channel, queue, 610)
    # After the first grants the offers of all members are known.
    assert found.count("s") == 299, found


def test_basic_get_takes_turns_too(channel, name, members):
    queue = group(channel, name, members=members)
    fill(channel, members, "aaaabbc")
    assert channel.ready(queue) == 7
    first = channel.get(queue)
    assert (first.body, first.method.message_count) == (b"a0", 6)
    assert letters(channel.get_all(queue)) == "bcabaa"
    channel.nack(first.tag)
    channel.expect_ready(members[0], 1)
    assert channel.get(queue, no_ack=True).method.redelivered
    assert channel.get(queue) is None


def test_a_weighted_group_gives_each_member_its_share(channel, name, members):
    queue = group(channel, name, members=members, schedule="weighted", weights={members[0]: 2}, batch=2)
    fill(channel, members, "a" * 8 + "bbbb" + "cc")
    assert letters(channel.get_all(queue)) == "aaaabbccaaaabb"


def test_a_strict_group_prefers_earlier_members(channel, name, members):
    """A strict group queue delivers from the first member that has a message when the delivery begins (QP-77)."""
    queue = group(channel, name, members=members, schedule="strict")
    fill(channel, members, "cbcbab")
    assert consumed(channel, queue, 3) == "abb"
    channel.confirm()
    channel.publish("a", members[0])
    channel.confirms(1, 1)
    event = channel.delivery()
    assert letters([event.body]) == "b"  # this one was delivered before
    channel.ack(event.tag)
    assert letters([channel.delivery().body]) == "a"


def test_settlements_go_to_the_member(channel, name, members):
    dead = channel.queue(f"{name} dead")
    source = channel.queue(f"{name} d", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    queue = group(channel, name, members=[source, members[0]], source_header=True)
    channel.fill(source, "one", "two")
    channel.qos(1)
    channel.consume(queue)
    first = channel.delivery()
    assert first.headers.get("x-warren-queue") == ("S", source.encode())
    channel.nack(first.tag)
    again = channel.delivery()
    assert (again.body, again.method.redelivered) == (b"one", True)
    channel.reject(again.tag, requeue=False)
    assert channel.delivery().body == b"two"
    channel.expect_ready(dead, 1)
    death = channel.get(dead, no_ack=True).headers.get("x-death")[1][0][1]
    assert death.get("queue") == ("S", source.encode())


def test_quorum_queues_can_be_members(channel, name):
    member = channel.queue(f"{name} a", {"x-queue-type": "quorum"}, durable=True)
    queue = group(channel, name, members=[member])
    channel.fill(member, "one")
    channel.consume(queue)
    first = channel.delivery()
    channel.nack(first.tag)
    assert channel.delivery().headers.get("x-delivery-count")[1] == 1


def test_no_ack_prefetch_and_a_global_limit(connect, channel, name, members):
    """A consumer of a group queue gets as much as its limits allow, and its messages are unacknowledged in
    the members.
    """
    queue = group(channel, name, members=members)
    fill(channel, members, "aaaabbbbcccc")
    channel.qos(5)
    tag = channel.consume(queue)
    channel.deliveries(5)
    assert channel.quiet(queue)
    channel.cancel(tag)
    other = connect().channel()
    other.qos(3, global_=True)
    other.consume(queue)
    last = other.deliveries(3)[-1]
    assert other.quiet(queue)
    other.ack(last.tag, multiple=True)
    other.deliveries(3)
    other.close()
    channel.nack(0, multiple=True)
    third = connect().channel()
    third.consume(queue, no_ack=True)
    third.deliveries(9)  # three were acknowledged
    for member in members:
        channel.expect_ready(member, 0)


def test_a_consumer_that_leaves_gives_everything_back(connect, channel, name, members):
    queue = group(channel, name, members=members)
    fill(channel, members, "aabbcc")
    client = connect()
    consumer = client.channel()
    consumer.consume(queue)
    consumer.deliveries(6)
    client.abort()
    for member in members:
        channel.expect_ready(member, 2)
    assert sorted(letters(channel.get_all(queue))) == sorted("aabbcc")


def test_a_pattern_finds_queues_that_come_and_go(channel, name):
    queue = group(channel, f"group {name}", pattern=f"^{name}-", schedule="strict")
    channel.consume(queue, no_ack=True)
    later = channel.queue(f"{name}-1")
    channel.publish("one", later)
    assert channel.delivery().body == b"one"
    channel.delete(later)
    again = channel.queue(f"{name}-1")
    channel.publish("two", again)
    assert channel.delivery().body == b"two"
    channel.publish("three", channel.queue(f"{name}-0"))
    assert channel.delivery().body == b"three"


def test_a_group_stores_nothing(channel, client, name, members):
    queue = group(channel, name, members=members)
    text = f"queue '{name}' is a group and stores nothing"
    for method in (m.QueuePurge(queue=queue), m.QueueBind(queue=queue, exchange="amq.direct", routing_key="x")):
        client.channel().refuses(403, text, method)
    client.channel().refuses(403, text, m.BasicPublish(routing_key=queue), b"body")
    # A copy that is published to the group queue itself is dropped.
    channel.publish("copy", members[0], headers={"CC": [queue]})
    channel.expect_ready(members[0], 1)
    assert letters(channel.get_all(queue)) == "c"
    assert channel.delete(queue) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-group-members": [1]}, '"expected an array of names of queues"'),
        (
            {"x-group-members": ["a"], "x-group-pattern": "a"},
            "\"a group has either named members or a pattern; leave out 'x-group-members' or 'x-group-pattern'\"",
        ),
        ({"x-group-pattern": "("}, "it is not a regular expression: missing ) at position 1"),
        (
            {"x-group-schedule": "first", "x-group-members": ["a"]},
            "\"expected 'strict', 'fair' or 'weighted', got 'first'\"",
        ),
        (
            {"x-group-weights": {"a": 0}, "x-group-members": ["a"]},
            "\"the weight of queue 'a' must be an integer from 1 on\"",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(channel, name, arguments, text):
    text = f"invalid arg '{next(iter(arguments))}' for queue '{name}' in vhost '/': {text}"
    channel.refuses(406, text, m.QueueDeclare(queue=name, arguments=table({"x-queue-type": "group", **arguments})))


def test_a_group_needs_members_and_has_no_limits(channel, client, name):
    text = f"queue '{name}' in vhost '/' is a group without members: declare it with 'x-group-members'"
    with pytest.raises(Refused, match=text):
        channel.queue(name, {"x-queue-type": "group"})
    text = f"invalid arg 'x-max-length' for queue '{name}' in vhost '/' of queue type warren_group_queue"
    with pytest.raises(Refused, match=text):
        client.channel().queue(name, {"x-queue-type": "group", "x-group-members": ["a"], "x-max-length": 1})


def test_a_user_needs_the_right_to_read_each_member(broker, channel, name, members):
    queue = group(channel, name, members=members)
    broker.add_user(name, "secret")
    broker.set_permissions(name, configure="", write="", read=f"^{name}$|^{name} a$")
    try:
        reader = Client(broker.url.replace("guest:guest", f"{name}:secret"))
        text = f"access to queue '{members[1]}' in vhost '/' refused for user '{name}'"
        reader.channel().refuses(403, text, m.BasicConsume(queue=queue))
        reader.channel().refuses(403, text, m.BasicGet(queue=queue))
        reader.close()
    finally:
        broker.delete_user(name)


def test_a_later_member_that_a_user_may_not_read_is_left_out(broker, channel, name):
    queue = group(channel, f"group {name}", pattern=f"^{name}-")
    broker.add_user(name, "secret")
    broker.set_permissions(name, configure="", write="", read=f"^group {name}$|^{name}-open$")
    try:
        client = Client(broker.url.replace("guest:guest", f"{name}:secret"))
        reader = client.channel()
        reader.consume(queue)
        closed, open_ = channel.queue(f"{name}-closed"), channel.queue(f"{name}-open")
        channel.publish("closed", closed)
        channel.publish("open", open_)
        assert reader.delivery().body == b"open"
        assert reader.quiet(queue)
        channel.consume(queue)
        assert channel.delivery().body == b"closed"
        client.close()
    finally:
        broker.delete_user(name)


def test_a_member_that_crashes_is_used_again(broker, channel, name, members):
    """After a member has crashed, a consumer gets the messages again that it had from that member, and only those."""
    inside = Inside(broker)
    queue = group(channel, name, members=members)
    fill(channel, members, "ab")
    channel.consume(queue)
    assert sorted(letters(channel.bodies(2))) == ["a", "b"]
    inside.crash(members[0])
    broker.wait_idle()
    if broker.settings.data_dir is not None:
        again = channel.delivery()
        assert (again.body[:1], again.method.redelivered) == (b"a", True)
    channel.publish("a9", members[0])
    assert channel.delivery().body == b"a9"


def test_a_group_that_crashes_loses_nothing(broker, channel, name, members):
    inside = Inside(broker)
    queue = group(channel, name, members=members)
    fill(channel, members, "abc")
    channel.consume(queue)
    assert sorted(letters(channel.bodies(3))) == ["a", "b", "c"]
    inside.crash(queue)
    again = channel.deliveries(3)
    assert sorted(letters(event.body for event in again)) == ["a", "b", "c"]
    assert all(event.method.redelivered for event in again)


def test_a_deleted_group_gives_everything_back(channel, name, members):
    queue = group(channel, name, members=members)
    fill(channel, members, "abc")
    channel.consume(queue)
    channel.deliveries(3)
    channel.delete(queue)
    for member in members:
        channel.expect_ready(member, 1)


def test_a_group_is_there_after_a_restart(tmp_path):
    arguments = {"x-queue-type": "group", "x-group-pattern": "^q"}
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("group", arguments, durable=True)
        channel.queue("q", durable=True)
        channel.confirm()
        channel.publish("one", "q", delivery_mode=2)
        channel.confirms(1, 1)
        client.close()
    with Broker(data_dir=str(tmp_path / "data"), port=0, stop_timeout=100) as broker:
        client = Client(broker.url)
        channel = client.channel()
        channel.queue("group", arguments, durable=True)
        channel.consume("group", no_ack=True)
        assert channel.delivery().body == b"one"
        with pytest.raises(Refused, match="406.*inequivalent arg 'x-group-pattern'"):
            channel.queue("group", {**arguments, "x-group-pattern": "^x"}, durable=True)
        client.close()
