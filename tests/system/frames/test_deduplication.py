"""Deduplication as an ordinary client sees it (SP-30), with pika."""

import json
import time
from contextlib import suppress

import pika
import pytest

from warren import Broker, BrokerError
from warren.actors.metadata import queue_windows

DEDUPLICATE = "x-warren-deduplicate"


@pytest.fixture
def channel(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if channel.is_closed:
        channel = connection.channel()
    for queue in ("q", "once", "all", "later"):
        channel.queue_delete(queue)
    for exchange in ("events", "front", "wide"):
        channel.exchange_delete(exchange)
    connection.close()


def publish(channel, body, exchange="", key="q", **properties):
    channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True)


def drained(channel, queue="q"):
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_the_broker_announces_it(channel):
    assert "deduplicate" in channel.connection._impl.server_properties["warren_features"]


def test_a_message_that_is_published_again_is_kept_once(channel):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    publish(channel, b"1", message_id="1")
    publish(channel, b"2", message_id="2")
    publish(channel, b"1 again", message_id="1")
    publish(channel, b"1 as header", headers={"x-warren-dedup": "1"}, message_id="2")
    publish(channel, b"no id")
    publish(channel, b"no id")
    assert drained(channel) == [b"1", b"2", b"1 as header", b"no id", b"no id"]


def test_each_queue_that_a_message_reaches_decides_by_itself(channel):
    channel.exchange_declare("events", "fanout")
    channel.queue_declare("once", durable=True, arguments={DEDUPLICATE: 100})
    channel.queue_declare("all", durable=True)
    for queue in ("once", "all"):
        channel.queue_bind(queue, "events")
    for _ in range(2):
        publish(channel, b"x" * 10_000, "events", "", message_id="1")
    assert (len(drained(channel, "once")), len(drained(channel, "all"))) == (1, 2)


def test_dead_letters_are_no_duplicates(channel):
    """A dead letter is no duplicate: a message that a consumer rejects comes back by way of a queue that delays it."""
    channel.queue_declare(
        "q",
        durable=True,
        arguments={DEDUPLICATE: 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "later"},
    )
    back = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    channel.queue_declare("later", durable=True, arguments={DEDUPLICATE: 100, **back})
    publish(channel, b"1", message_id="1")
    for _ in range(3):
        method, _, body = next(channel.consume("q", inactivity_timeout=10))
        assert body == b"1"
        channel.basic_reject(method.delivery_tag, requeue=False)


def set_window(own, window, operator=False):
    own.set_policy("once", "^q$", {"deduplicate": window}, apply_to="queues", operator=operator)


@pytest.fixture
def policies(own):
    yield own
    for operator in (False, True):
        with suppress(BrokerError):
            own.clear_policy("once", operator=operator)


def catalogue_body(channel, queues=("q",)):
    arguments = {"x-warren-queues": list(queues)}
    body = next(channel.consume("amq.warren.catalogue", True, arguments=arguments, inactivity_timeout=9))[2]
    channel.cancel()
    return body


def window(channel):
    """The window that the catalogue shows."""
    return json.loads(catalogue_body(channel))[0]["dedup"]


def await_window(channel, size):
    """Wait until the window is `size`: a policy reaches its queues a moment after it was set."""
    deadline = time.monotonic() + 30
    while window(channel) != size:
        assert time.monotonic() < deadline, "the queue does not follow its policy"


def test_a_policy_has_a_queue_deduplicate(channel, policies):
    channel.queue_declare("q", durable=True)
    publish(channel, b"before", message_id="1")
    set_window(policies, 100)
    await_window(channel, 100)
    for body in (b"1", b"1 again"):
        publish(channel, body, message_id="1")
    policies.clear_policy("once")
    await_window(channel, 0)
    publish(channel, b"after", message_id="1")
    assert drained(channel) == [b"before", b"1", b"after"]


def test_the_smallest_of_argument_policy_and_operator_policy_counts(channel, policies):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    set_window(policies, 50)
    await_window(channel, 50)
    set_window(policies, 200)
    await_window(channel, 100)
    set_window(policies, 20, operator=True)
    await_window(channel, 20)
    policies.clear_policy("once", operator=True)
    await_window(channel, 100)


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_policy_that_deduplicates_does_not_apply_to_other_types(channel, policies, kind):
    set_window(policies, 100)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": kind})
    assert window(channel) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({DEDUPLICATE: 0}, "expected a number of messages from 1 to 10000000, got 0"),
        ({DEDUPLICATE: 10_000_001}, "expected a number of messages from 1 to 10000000, got 10000001"),
        ({DEDUPLICATE: "many"}, "expected integer, got longstr"),
        ({DEDUPLICATE: 10, "x-queue-type": "stream"}, "x-warren-deduplicate"),
        ({DEDUPLICATE: 10, "x-queue-type": "quorum"}, "x-warren-deduplicate"),
    ],
)
def test_wrong_arguments_are_refused(channel, arguments, text):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=text) as refused:
        channel.queue_declare("q", durable=True, arguments=arguments)
    assert refused.value.reply_code == 406


def test_a_declaration_with_another_window_is_refused(channel):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'x-warren-deduplicate'"):
        channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 101})


# -- by the argument of an exchange ---


def declare_exchange(channel, name, window=None, kind="fanout", **arguments):
    arguments = arguments if window is None else {DEDUPLICATE: window, **arguments}
    channel.exchange_declare(name, kind, durable=True, arguments=arguments)


def published_twice(channel, exchange, key, headers=None):
    """How often a queue has a message with an id of its own that was published twice in this way."""
    for _ in range(2):
        publish(channel, b"x", exchange, key, message_id=f"{exchange} {key} {headers}", headers=headers)
    return len(drained(channel))


def test_an_exchange_has_its_queues_check_what_comes_through_it(channel):
    declare_exchange(channel, "events", 100)
    channel.queue_declare("q", durable=True)
    assert window(channel) == 0
    channel.queue_bind("q", "events")
    assert window(channel) == 100
    assert published_twice(channel, "events", "") == 1
    assert published_twice(channel, "", "q") == 2, "this did not come through the exchange"
    declare_exchange(channel, "wide", 1_000)
    channel.queue_bind("q", "wide")
    assert window(channel) == 1_000, "the widest exchange counts"
    channel.exchange_delete("wide")
    assert window(channel) == 100
    publish(channel, b"x", "events", "", message_id="events  None")
    assert drained(channel) == [], "a narrower window keeps what it can"
    channel.queue_unbind("q", "events")
    assert window(channel) == 0
    channel.queue_bind("q", "events")
    assert published_twice(channel, "events", "") == 1, "the window begins empty"


def test_the_window_of_a_queue_is_the_widest_of_its_own_and_of_its_exchanges(channel):
    declare_exchange(channel, "events", 10)
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    channel.queue_bind("q", "events")
    assert window(channel) == 100
    assert published_twice(channel, "", "q") == 1
    declare_exchange(channel, "wide", 1_000)
    channel.queue_bind("q", "wide")
    assert window(channel) == 1_000
    assert published_twice(channel, "", "q") == 0, "its own argument has it check all messages"


@pytest.mark.parametrize("kind", ["topic", "headers"])
def test_a_message_is_checked_only_if_its_way_leads_through_the_exchange(channel, kind):
    """A message is checked for duplicates only if its way leads through the exchange that deduplicates, here one kind
    of messages and not the other.
    """
    declare_exchange(channel, "front", kind=kind)
    declare_exchange(channel, "events", 100)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "events")
    for bind, target, name in ((channel.exchange_bind, "events", "once"), (channel.queue_bind, "q", "all")):
        bind(target, "front", name, arguments={"kind": name} if kind == "headers" else None)
    assert published_twice(channel, "front", "once", {"kind": "once"}) == 1
    assert published_twice(channel, "front", "all", {"kind": "all"}) == 2


def test_an_alternate_exchange_may_deduplicate(channel):
    declare_exchange(channel, "events", 100)
    declare_exchange(channel, "front", kind="direct", **{"alternate-exchange": "events"})
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "events")
    channel.queue_bind("q", "front", "known")
    assert published_twice(channel, "front", "unknown") == 1
    assert published_twice(channel, "front", "known") == 2


def test_queues_behind_the_default_exchange_as_an_alternate(channel):
    """If a deduplicating exchange has the default exchange as its alternate, every queue is behind it, also one that is
    declared later, because all are reached by their names (AB-76).
    """
    declare_exchange(channel, "events", 100, **{"alternate-exchange": ""})
    channel.queue_declare("q", durable=True)
    assert window(channel) == 100
    assert published_twice(channel, "events", "q") == 1
    assert published_twice(channel, "", "q") == 2


def test_queues_follow_policies_of_alternate_exchanges(channel, policies):
    declare_exchange(channel, "front", 100)
    declare_exchange(channel, "events")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "events")
    assert window(channel) == 0
    policies.set_policy("once", "^front$", {"alternate-exchange": "events"}, apply_to="exchanges")
    await_window(channel, 100)
    assert published_twice(channel, "front", "") == 1
    policies.clear_policy("once")
    await_window(channel, 0)


def test_all_queues_behind_an_exchange_follow_in_slices(channel, monkeypatch):
    monkeypatch.setattr(queue_windows, "SLICE", 3)
    declare_exchange(channel, "events", 100)
    declare_exchange(channel, "front")
    queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(10)]
    for queue in queues:
        channel.queue_bind(queue, "front")
    channel.queue_declare("q")
    channel.queue_bind("q", "front")  # the last one that follows
    for change, size in ((channel.exchange_bind, 100), (channel.exchange_unbind, 0)):
        change("front", "events")
        await_window(channel, size)
        body = catalogue_body(channel, queues)
        assert [row["dedup"] for row in json.loads(body)] == [size] * 10


def test_an_exchange_has_its_queues_remember_after_a_restart(tmp_path):
    def open_channel(broker):
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        channel.confirm_delivery()
        return channel

    with Broker(data_dir=str(tmp_path)) as broker:
        channel = open_channel(broker)
        declare_exchange(channel, "events", 100)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "events")
        assert published_twice(channel, "events", "") == 1
    with Broker(data_dir=str(tmp_path)) as broker:
        channel = open_channel(broker)
        assert window(channel) == 100
        assert published_twice(channel, "events", "") == 0, "what was acknowledged is remembered"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "expected a number of messages from 1 to 10000000, got 0"),
        (10_000_001, "expected a number of messages from 1 to 10000000, got 10000001"),
        ("many", "expected integer, got longstr"),
    ],
)
def test_wrong_arguments_of_exchanges_are_refused(channel, value, text):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=text) as refused:
        declare_exchange(channel, "events", value)
    assert refused.value.reply_code == 406


@pytest.mark.parametrize("other", [None, 101])
def test_an_exchange_keeps_its_window(channel, other):
    declare_exchange(channel, "events", 100)
    declare_exchange(channel, "events", 100)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'x-warren-deduplicate'"):
        declare_exchange(channel, "events", other)


# -- sharded queues ---


@pytest.mark.parametrize("by", ["argument", "policy", "exchange"])
@pytest.mark.parametrize("shard_policy", ["sequence", "random"])
def test_a_sharded_queue_has_each_message_once(channel, policies, by, shard_policy):
    """A sharded queue has each message once: messages with equal ids go to the same shard, and those without an id are
    spread as ever.
    """
    exchange = "events" if by == "exchange" else ""
    arguments = {"x-warren-shards": 4, "x-warren-shard-policy": shard_policy}
    channel.queue_declare("q", arguments=arguments | ({DEDUPLICATE: 100} if by == "argument" else {}))
    if by == "policy":
        set_window(policies, 100)
        await_window(channel, 100)
    elif by == "exchange":
        declare_exchange(channel, "events", 100)
        channel.queue_bind("q", "events")
    assert window(channel) == 100
    for _ in range(2):
        for number in range(40):
            publish(channel, b"%d" % number, exchange, message_id=str(number))
    for _ in range(8):
        publish(channel, b"no id", exchange)
    rows = json.loads(catalogue_body(channel))
    assert all(row["messages"] for row in rows), "all shards have messages"
    assert sorted(drained(channel)) == sorted([b"%d" % number for number in range(40)] + 8 * [b"no id"])
