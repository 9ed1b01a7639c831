"""Sharded queues over real sockets: a client uses a logical queue as any other queue (flow-control section 13)."""

import threading
import time

import pika
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from warren import Broker

SECONDS = 60
SHARDS = 4


@pytest.fixture(scope="module")
def broker():
    with Broker(port=0) as broker:
        yield broker


@pytest.fixture
def connect(broker):
    connections = []

    def connect():
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connections.append(connection)
        return connection.channel()

    yield connect
    for connection in connections:
        if connection.is_open:
            connection.close()
    broker.wait_idle()
    while names := [queue.name for queue in broker.queues()]:
        broker.delete_queue(min(names, key=len))  # a logical queue before its shards, which it takes with it


def declare(channel, name="q", shards=SHARDS, *, durable=False, exclusive=False, auto_delete=False, **arguments):
    table = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return channel.queue_declare(
        name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments={"x-warren-shards": shards, **table},
    ).method


def fill(channel, count, queue="q", **options):
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, **options)


def ready(broker, name="q"):
    return broker.queue(name).messages_ready


def in_shards(broker, name="q", shards=SHARDS):
    return [ready(broker, f"{name}_{index}") for index in range(shards)]


def refusal(channel, action):
    with pytest.raises(ChannelClosedByBroker) as closed:
        action(channel)
    return closed.value.reply_code, closed.value.reply_text


def receive(channel, count, queue="q", prefetch=0, auto_ack=False):
    """Consume `count` messages and return them; acknowledge each when it has arrived."""
    channel.basic_qos(prefetch_count=prefetch)
    found = []
    for method, _, body in channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=SECONDS):
        assert method is not None, f"{len(found)} of {count} messages arrived"
        found.append(int(body))
        if not auto_ack:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            channel.cancel()
            return found


# -- one queue for the client ---


def test_a_sequence_fills_the_shards_evenly(broker, connect):
    """Messages in sequence fill the shards evenly, and a passive declare counts all of them (FC-89, FC-91)."""
    channel = connect()
    assert declare(channel).message_count == 0
    fill(channel, 42, mandatory=True)
    assert sorted(in_shards(broker)) == [10, 10, 11, 11]
    counted = channel.queue_declare("q", passive=True).method
    assert (counted.message_count, counted.consumer_count) == (42, 0)
    assert declare(channel).message_count == 42  # an equivalent declaration succeeds


def test_random_shards_get_their_share(broker, connect):
    """With the policy `random` each shard gets about its share (FC-89)."""
    channel = connect()
    declare(channel, warren_shard_policy="random")
    fill(channel, 400)
    assert sum(in_shards(broker)) == 400 and min(in_shards(broker)) > 50


def test_a_pipelined_run_is_spread_and_confirmed_message_by_message(broker, connect):
    """Of many publishes that reach the channel at once, each has its confirm, whichever shard it went to (FC-91)."""
    channel = connect()
    declare(channel)
    with broker_publisher(broker) as publisher:
        publisher.publish(1000, "q")
        assert publisher.confirmed == 1000
    assert in_shards(broker) == [250] * 4


class broker_publisher:
    """A connection that publishes without waiting, and counts confirms."""

    def __init__(self, broker):
        self.url, self.confirmed, self.done = broker.url, 0, threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def publish(self, count, queue):
        def opened(connection):
            connection.channel(on_open_callback=channel_opened)

        def channel_opened(channel):
            channel.confirm_delivery(confirmed, callback=lambda frame: send(channel))

        def send(channel):
            for number in range(count):
                channel.basic_publish("", queue, b"%d" % number)

        def confirmed(frame):
            method = frame.method
            assert isinstance(method, pika.spec.Basic.Ack)
            self.confirmed = method.delivery_tag if method.multiple else self.confirmed + 1
            if method.delivery_tag == count:
                connection.close()

        connection = pika.SelectConnection(
            pika.URLParameters(self.url),
            on_open_callback=opened,
            on_close_callback=lambda connection, reason: connection.ioloop.stop(),
        )
        connection.ioloop.call_later(SECONDS, connection.ioloop.stop)
        connection.ioloop.start()


def test_an_exchange_binds_the_logical_queue(broker, connect):
    """An exchange binds the logical queue, and its messages go to the shards (FC-89, FC-91)."""
    channel = connect()
    declare(channel)
    channel.queue_declare("plain")
    channel.queue_bind("q", "amq.fanout")
    channel.queue_bind("plain", "amq.fanout")
    channel.confirm_delivery()
    for _ in range(8):
        channel.basic_publish("amq.fanout", "", b"x", mandatory=True)
    assert in_shards(broker) == [2] * 4 and ready(broker, "plain") == 8
    channel.queue_unbind("q", "amq.fanout")
    channel.queue_delete("plain")
    with pytest.raises(UnroutableError):
        channel.basic_publish("amq.fanout", "", b"x", mandatory=True)


def test_transactions_reach_the_shards(broker, connect):
    channel = connect()
    declare(channel)
    channel.tx_select()
    for _ in range(8):
        channel.basic_publish("", "q", b"x")
    assert sum(in_shards(broker)) == 0
    channel.tx_commit()
    assert in_shards(broker) == [2] * 4


# -- getting ---


def test_successive_gets_touch_all_shards(broker, connect):
    """Successive gets take from all shards, so that no shard's oldest message waits for more than N gets, and get-ok
    counts the whole queue (FC-92, FC-78).
    """
    channel = connect()
    declare(channel)
    fill(channel, 12)
    for left in range(11, -1, -1):
        method, _, body = channel.basic_get("q", auto_ack=True)
        assert method.message_count == left and method.routing_key == "q"
        assert max(in_shards(broker)) - min(in_shards(broker)) <= 1
    assert channel.basic_get("q")[0] is None


def test_a_got_message_is_settled_at_its_shard(broker, connect):
    channel = connect()
    declare(channel)
    fill(channel, 4)
    got = [channel.basic_get("q") for _ in range(4)]
    assert ready(broker) == 0 and broker.queue("q").messages_unacknowledged == 4
    channel.basic_nack(got[0][0].delivery_tag, requeue=True)
    for method, _, _ in got[1:]:
        channel.basic_ack(method.delivery_tag)
    method, _, body = channel.basic_get("q", auto_ack=True)
    assert method.redelivered and body == got[0][2]


# -- consuming ---


@pytest.mark.parametrize("prefetch, auto_ack", [(0, False), (1, False), (5, False), (0, True)])
def test_consumers_get_everything_once_in_the_order_of_each_shard(broker, connect, prefetch, auto_ack):
    """Consumers get every message once, in the order of each shard (FC-94)."""
    channel = connect()
    declare(channel)
    fill(channel, 60)
    found = receive(channel, 60, prefetch=prefetch, auto_ack=auto_ack)
    assert sorted(found) == list(range(60))
    for first in range(SHARDS):
        of_shard = [number for number in found if number % SHARDS == first]
        assert of_shard == sorted(of_shard)
    broker.wait_idle()
    assert broker.queue("q").messages == 0


@pytest.mark.parametrize("prefetch", [1, 3, 10])
def test_the_prefetch_is_that_of_the_logical_queue(broker, connect, prefetch):
    """The prefetch counts for the logical queue: with 1, one message in total is unacknowledged, and an ack brings
    exactly one more (FC-93).
    """
    channel, found = connect(), []
    declare(channel)
    fill(channel, 40)
    channel.basic_qos(prefetch_count=prefetch)
    channel.basic_consume("q", lambda ch, method, props, body: found.append(method.delivery_tag))
    for settled in range(5):
        wait_until(channel, lambda settled=settled: len(found) == prefetch + settled)
        broker.wait_idle()
        assert broker.queue("q").messages_unacknowledged == prefetch
        assert broker.queue("q").messages_ready == 40 - prefetch - settled
        channel.basic_ack(found[settled])


def test_unused_prefetch_goes_to_the_shards_that_have_messages(broker, connect):
    channel, found = connect(), []
    declare(channel)
    channel.basic_qos(prefetch_count=8)
    channel.basic_consume("q", lambda ch, method, props, body: found.append(method.delivery_tag))
    publisher = connect()
    fill(publisher, 40)
    wait_until(channel, lambda: len(found) == 8)
    channel.basic_ack(found[-1], multiple=True)
    wait_until(channel, lambda: len(found) == 16)
    broker.wait_idle()
    channel.connection.process_data_events(0)
    assert len(found) == 16


def test_the_channel_limit_counts_shards_and_other_queues_together(broker, connect):
    channel, found = connect(), []
    declare(channel)
    channel.queue_declare("plain")
    fill(channel, 20)
    fill(channel, 20, "plain")
    channel.basic_qos(prefetch_count=6, global_qos=True)
    for queue in ("q", "plain"):
        channel.basic_consume(queue, lambda ch, method, props, body: found.append(method.delivery_tag))
    wait_until(channel, lambda: len(found) == 6)
    broker.wait_idle()
    channel.connection.process_data_events(0)
    assert len(found) == 6
    channel.basic_ack(found[-1], multiple=True)
    wait_until(channel, lambda: len(found) == 12)


def test_a_consumer_that_comes_again_has_its_whole_prefetch(broker, connect):
    channel, found = connect(), []
    declare(channel)
    fill(channel, 20)
    channel.basic_qos(prefetch_count=2)

    def consume():
        return channel.basic_consume("q", lambda ch, method, props, body: found.append(method.delivery_tag))

    tag = consume()
    wait_until(channel, lambda: len(found) == 2)
    channel.basic_cancel(tag)
    consume()
    wait_until(channel, lambda: len(found) == 4)
    channel.basic_ack(found[1], multiple=True)  # acknowledges those of the first consumer
    broker.wait_idle()
    channel.connection.process_data_events(0)
    assert len(found) == 4
    channel.basic_ack(found[3], multiple=True)
    wait_until(channel, lambda: len(found) == 6)


def wait_until(channel, is_so):
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        channel.connection.process_data_events(0.05)


def test_a_second_consumer_with_a_prefetch_needs_another_channel(broker, connect):
    channel, other = connect(), connect()
    declare(channel)
    channel.basic_consume("q", print, consumer_tag="first")
    channel.basic_consume("q", print)  # without a prefetch
    channel.basic_qos(prefetch_count=3)
    code, text = refusal(channel, lambda channel: channel.basic_consume("q", print))
    assert code == 406 and "has its consumer 'first' already. Consume on another channel" in text
    other.basic_qos(prefetch_count=3)
    other.basic_consume("q", print)
    assert broker.queue("q").consumers == 1


def test_unacknowledged_messages_return_when_the_channel_closes(broker, connect):
    channel = connect()
    declare(channel)
    fill(channel, 8)
    other = connect()
    other.basic_consume("q", lambda *arguments: None)
    wait_until(other, lambda: broker.queue("q").messages_unacknowledged == 8)
    assert broker.queue("q").consumers == 1
    assert [(row.queue_name, row.consumer_tag) for row in broker.consumers()] == [("q", other.consumer_tags[0])]
    other.close()
    broker.wait_idle()
    assert in_shards(broker) == [2] * 4 and broker.queue("q").consumers == 0


def test_an_exclusive_consumer_has_the_whole_queue(broker, connect):
    """An exclusive consumer has the whole logical queue for itself (FC-95)."""
    first, second = connect(), connect()
    declare(first)
    first.basic_consume("q", print, exclusive=True)
    code, text = refusal(second, lambda channel: channel.basic_consume("q", print))
    assert code == 403 and "queue 'q' in vhost '/' in exclusive use" in text


def test_a_consumer_at_a_shard_forbids_an_exclusive_one_at_the_whole(broker, connect):
    """A consumer at one shard keeps an exclusive consumer of the logical queue out (FC-95)."""
    first, second = connect(), connect()
    declare(first)
    first.basic_consume("q_2", print)
    code, text = refusal(second, lambda channel: channel.basic_consume("q", print, exclusive=True))
    assert code == 403 and "queue 'q_2' in vhost '/' in exclusive use" in text
    broker.wait_idle()
    assert broker.queue("q").consumers == 0 and broker.queue("q_0").consumers == 0


def test_deletion_cancels_a_consumer_once(broker, connect):
    channel, cancelled = connect(), []
    declare(channel)
    channel.basic_consume("q", print, consumer_tag="mine")
    channel.add_on_cancel_callback(cancelled.append)
    connect().queue_delete("q")
    wait_until(channel, lambda: cancelled)
    broker.wait_idle()
    channel.connection.process_data_events(0)
    assert [frame.method.consumer_tag for frame in cancelled] == ["mine"]
    assert broker.queues() == []
    channel.queue_declare("plain")  # works, because the channel is still open


# -- the whole ---


def test_purge_and_delete_count_all_shards(broker, connect):
    channel = connect()
    declare(channel)
    fill(channel, 9)
    assert channel.queue_purge("q").method.message_count == 9
    fill(channel, 7)
    for flag in ("if_empty", "if_unused"):
        other = connect()
        if flag == "if_unused":
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume("q", lambda *arguments: None)
        code, text = refusal(other, lambda channel, flag=flag: channel.queue_delete("q", **{flag: True}))
        assert code == 406 and ("not empty" if flag == "if_empty" else "in use") in text
        assert broker.queue("q").messages == 7
    channel.close()
    assert connect().queue_delete("q").method.message_count == 7
    assert broker.queues() == []


@pytest.mark.parametrize("durable", [False, True])
def test_a_deletion_counts_all_shards_on_a_disk(tmp_path, durable):
    """queue.delete-ok counts the messages of all shards, because their processes are not killed before they have
    answered (FC-96).
    """
    with Broker(port=0, data_dir=tmp_path) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as client:
        channel = client.channel()
        declare(channel, durable=durable)
        fill(channel, 7)
        assert channel.queue_delete("q").method.message_count == 7


def test_auto_delete_and_exclusive_end_the_whole(broker, connect):
    channel = connect()
    declare(channel, auto_delete=True)
    tag = channel.basic_consume("q", print)
    channel.basic_cancel(tag)
    broker.wait_idle()
    assert broker.queues() == []
    declare(channel, exclusive=True)
    fill(channel, 8)
    assert refusal(connect(), lambda other: other.basic_get("q"))[0] == 405
    assert refusal(connect(), lambda other: other.basic_get("q_1"))[0] == 405
    channel.connection.close()
    broker.wait_idle()
    assert broker.queues() == []


def test_expiry_ends_the_whole_and_get_counts_as_use(broker, connect):
    channel = connect()
    declare(channel, expires=600)
    start = time.monotonic()
    while time.monotonic() < start + 1.2:
        channel.basic_get("q")
        channel.connection.sleep(0.1)
    assert len(broker.queues()) == SHARDS + 1
    deadline = time.monotonic() + SECONDS
    while broker.queues():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_length_limits_are_split(broker, connect):
    """A length limit of the logical queue is divided among its shards (FC-97)."""
    channel = connect()
    declare(channel, max_length=10, overflow="reject-publish")
    channel.confirm_delivery()
    accepted = 0
    for _ in range(40):
        try:
            channel.basic_publish("", "q", b"x")
            accepted += 1
        except NackError:
            pass
    assert accepted == 10 and in_shards(broker) == [4, 2, 2, 2]


def test_a_policy_matches_the_logical_name(broker, connect):
    """A policy that matches the name of the logical queue applies to it and its shards (FC-89, FC-97)."""
    channel = connect()
    declare(channel)
    broker.set_policy("short", "^q$", {"max-length": 8})
    broker.wait_idle()
    fill(channel, 40)
    assert in_shards(broker) == [2] * 4
    broker.clear_policy("short")
    broker.wait_idle()
    fill(channel, 40)
    assert sum(in_shards(broker)) == 48


def test_expired_messages_become_dead_letters_of_the_logical_queue(broker, connect):
    """Expired messages become dead letters of the logical queue (FC-97)."""
    channel = connect()
    channel.queue_declare("dead")
    declare(channel, message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    fill(channel, 8)
    found = [channel.basic_get("dead", auto_ack=True) for _ in range(8)]
    assert sorted(int(body) for _, _, body in found) == list(range(8))
    assert {props.headers["x-death"][0]["queue"] for _, props, _ in found} == {"q"}


def test_dead_letters_go_to_the_shards_of_a_sharded_queue(broker, connect):
    """Dead letters to a sharded queue go to its shards (FC-89)."""
    channel = connect()
    declare(channel)
    channel.queue_declare("source", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    for _ in range(8):
        fill(channel, 1, "source")
        method, _, _ = channel.basic_get("source")
        channel.basic_reject(method.delivery_tag, requeue=False)
        broker.wait_idle()
    assert in_shards(broker) == [2] * 4


# -- shards by name ---


def test_a_shard_can_be_read_and_nothing_else(broker, connect):
    """A shard can be read by its name, and nothing else can be done to it (FC-88)."""
    channel = connect()
    declare(channel)
    fill(channel, 8)
    assert channel.queue_declare("q_1", passive=True).method.message_count == 2
    assert channel.basic_get("q_1", auto_ack=True)[0] is not None
    assert channel.queue_purge("q_1").method.message_count == 1
    for action in (
        lambda other: other.queue_declare("q_1"),
        lambda other: other.queue_bind("q_1", "amq.fanout"),
        lambda other: other.queue_delete("q_1"),
        lambda other: (other.confirm_delivery(), other.basic_publish("", "q_1", b"x")),
    ):
        code, text = refusal(connect(), action)
        assert code == 405 and "queue 'q_1' in vhost '/' is a shard of queue 'q'" in text
    assert broker.queue("q").messages == 6


def test_rights_are_those_of_the_logical_queue(broker, connect):
    """Permissions are checked for the name of the logical queue (FC-88, FC-89)."""
    declare(connect())
    broker.add_user("reader", "reader")
    broker.set_permissions("reader", configure="", write="", read="^q$")
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials("reader", "reader")
    connection = pika.BlockingConnection(parameters)
    assert connection.channel().basic_get("q_1")[0] is None
    assert connection.channel().basic_get("q")[0] is None
    broker.set_permissions("reader", configure="", write="", read="^q_1$")
    assert refusal(connection.channel(), lambda other: other.basic_get("q_1"))[0] == 403
    connection.close()
    broker.delete_user("reader")


def test_queue_limits_count_the_logical_queue(broker, connect):
    """A limit of queues counts a logical queue, with its shards, as it counts any other queue (FC-89)."""
    channel = connect()
    broker.set_vhost_limits({"max-queues": 2})
    try:
        declare(channel)
        channel.queue_declare("second")
        assert "queue limit in vhost '/' (2) is reached" in refusal(channel, lambda other: other.queue_declare("b"))[1]
        connect().queue_delete("q")
        connect().queue_declare("b")
    finally:
        broker.set_vhost_limits({"max-queues": -1})


# -- what is refused ---


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"x-warren-shards": 0}, "expected a number from 1 to 256, got 0"),
        ({"x-warren-shards": 257}, "expected a number from 1 to 256, got 257"),
        ({"x-warren-shards": -1}, "expected a number from 1 to 256, got -1"),
        ({"x-shards": "4"}, "expected integer, got longstr"),
        ({"x-warren-shards": 4, "x-warren-shard-policy": "key"}, "expected 'sequence' or 'random', got 'key'"),
        ({"x-warren-shards": 4, "x-warren-shard-order": "strict"}, "publish and consume with warren.sharding"),
        ({"x-warren-shards": 4, "x-single-active-consumer": True}, "a single active consumer gains nothing"),
        ({"x-warren-shards": 4, "x-max-length": 3}, "declare at most 3 shards"),
        ({"x-warren-shards": 4, "x-queue-type": "quorum"}, "of queue type rabbit_quorum_queue"),
    ],
)
def test_refused_declarations(broker, connect, arguments, text):
    """Wrong numbers of shards, and arguments that a sharded queue cannot have, are refused (FC-87, FC-94, FC-95)."""
    code, found = refusal(connect(), lambda channel: channel.queue_declare("q", durable=True, arguments=arguments))
    assert code == 406 and text in found and found.startswith("PRECONDITION_FAILED - invalid arg 'x-")
    assert broker.queues() == []


def test_a_name_that_a_shard_needs(broker, connect):
    """A declare is refused if another queue has a name that a shard needs (FC-88)."""
    channel = connect()
    channel.queue_declare("q_2")
    code, text = refusal(channel, declare)
    assert code == 406 and "queue 'q_2' exists already. Delete it, or choose another name." in text
    channel = connect()
    assert "more than 255 bytes" in refusal(channel, lambda channel: declare(channel, "q" * 254))[1]
    connect().queue_delete("q_2")


def test_other_numbers_of_shards_are_not_equivalent(broker, connect):
    """A declare with another number of shards is refused as not equivalent (FC-87)."""
    declare(connect())
    text = refusal(connect(), lambda channel: declare(channel, shards=2))[1]
    assert "inequivalent arg 'x-warren-shards' for queue 'q' in vhost '/': received '2' but current is '4'" in text
    assert refusal(connect(), lambda channel: channel.queue_declare("q"))[0] == 406


def test_one_shard_is_an_ordinary_queue(broker, connect):
    """A queue with one shard is an ordinary queue (FC-87)."""
    channel = connect()
    declare(channel, shards=1)
    fill(channel, 2)
    assert [(queue.name, queue.messages) for queue in broker.queues()] == [("q", 2)]


def test_reading_by_number_needs_a_shard(broker, connect):
    channel = connect()
    declare(channel)
    fill(channel, 8)
    code, text = refusal(
        connect(), lambda other: other.basic_consume("q", print, arguments={"x-warren-read-from": "first"})
    )
    assert code == 406 and "read one of its shards instead, such as 'q_0'" in text


# -- restarts ---


def test_a_durable_sharded_queue_survives_a_restart(tmp_path):
    with Broker(port=0, data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        declare(channel, durable=True)
        channel.queue_bind("q", "amq.fanout")
        fill(channel, 10, properties=pika.BasicProperties(delivery_mode=2))
        connection.close()
    with Broker(port=0, data_dir=tmp_path) as broker:
        assert sum(in_shards(broker)) == broker.queue("q").messages == 10
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        assert declare(channel, durable=True).message_count == 10
        channel.confirm_delivery()
        channel.basic_publish("amq.fanout", "", b"10", properties=pika.BasicProperties(delivery_mode=2))
        assert sorted(receive(channel, 11, prefetch=3)) == list(range(11))
        assert channel.queue_delete("q").method.message_count == 0
        connection.close()
    with Broker(port=0, data_dir=tmp_path) as broker:
        assert broker.queues() == []


@pytest.mark.parametrize("way", ["delete", "expire"])
def test_a_sharded_queue_ends_whose_shards_nobody_has_used_since_a_restart(tmp_path, way, caplog):
    """A sharded queue ends as a whole after a restart, although its empty shards have no processes before one is
    needed.
    """
    with Broker(port=0, data_dir=tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        declare(connection.channel(), durable=True, **({"expires": 1000} if way == "expire" else {}))
        connection.close()
    with Broker(port=0, data_dir=tmp_path) as broker:
        if way == "delete":
            assert broker.delete_queue("q") == 0
        deadline = time.monotonic() + SECONDS
        # does not ask the queues, as `broker.queues` would
        while any(binding.destination_name == "q" for binding in broker.bindings()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        broker.wait_idle()
        assert broker.queues() == []
        broker.declare_queue("q_0")
        broker.wait_idle()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


# -- any history ---


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["publish", "get", "consume", "purge"]), max_size=12), st.integers(2, 5))
def test_nothing_is_lost_or_doubled_in_any_history(broker, steps, shards):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    declare(channel, "h", shards)
    expected, number = set(), 0
    for step in steps:
        if step == "publish":
            for _ in range(7):
                channel.basic_publish("", "h", b"%d" % number)
                expected.add(number)
                number += 1
        elif step == "get":
            for _ in range(3):
                method, _, body = channel.basic_get("h", auto_ack=True)
                assert (method is None) == (not expected)
                if method is not None:
                    expected.remove(int(body))
                    assert method.message_count == len(expected)
        elif step == "consume" and expected:
            found = receive(channel, len(expected), "h", prefetch=2)
            assert set(found) == expected
            expected.clear()
        elif step == "purge":
            assert channel.queue_purge("h").method.message_count == len(expected)
            expected.clear()
        assert channel.queue_declare("h", passive=True).method.message_count == len(expected)
    assert channel.queue_delete("h").method.message_count == len(expected)
    connection.close()
