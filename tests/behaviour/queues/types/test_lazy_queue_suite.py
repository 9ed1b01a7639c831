"""lazy_queue_SUITE: a test for each case (queue-and-store section 12.3), with a data directory."""

import pytest

from warren import Broker, BrokerError

from ...inside import Inside
from ...wire import Client

WAVE = 2000


@pytest.fixture(scope="module")
def disk_broker(tmp_path_factory):
    with Broker(data_dir=str(tmp_path_factory.mktemp("lazy") / "data"), stop_timeout=100) as broker:
        yield broker


@pytest.fixture
def disk_channel(disk_broker):
    client = Client(disk_broker.url)
    yield client.channel()
    client.abort()


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [({"x-queue-mode": "lazy"}, "lazy"), ({"x-queue-mode": "default"}, "default"), ({}, "default")],
)
def test_declare_args(disk_broker, disk_channel, name, arguments, mode):
    """A listing shows the mode as it was declared, or `default` without one."""
    disk_channel.queue(name, arguments, durable=True)
    assert disk_broker.queue(name).queue_mode == mode


@pytest.mark.parametrize("argument", [None, "default", "lazy"])
def test_queue_mode_policy(disk_broker, disk_channel, name, argument):
    """QS-49, D-1: a policy sets the mode of a queue without the argument, and the queue follows each change."""
    disk_channel.queue(name, {} if argument is None else {"x-queue-mode": argument}, durable=True)
    disk_channel.fill(name, *map(str, range(100)))
    for mode in ("lazy", "default", "lazy"):
        disk_broker.set_policy(name, f"^{name}$", {"queue-mode": mode})
        disk_broker.wait_idle()
        assert disk_broker.queue(name).queue_mode == (argument or mode)
    disk_broker.clear_policy(name)
    disk_broker.wait_idle()
    assert disk_broker.queue(name).queue_mode == (argument or "default")
    assert disk_broker.queue(name).messages == 100


@pytest.mark.parametrize("argument", ["default", "lazy"])
def test_queue_mode_policy_that_precedes_the_argument(tmp_path, name, argument):
    """With `queue_mode_precedence` `policy`, a policy overrides the argument in queues that exist, and in those
    declared or started later (D-1).
    """
    data_dir = str(tmp_path / "data")
    with Broker(data_dir=data_dir, queue_mode_precedence="policy") as broker:
        broker.declare_queue("before", durable=True, arguments={"x-queue-mode": argument})
        assert broker.queue("before").queue_mode == argument
        mode = {"lazy": "default", "default": "lazy"}[argument]
        broker.set_policy("modes", ".*", {"queue-mode": mode})
        broker.wait_idle()
        broker.declare_queue("after", durable=True, arguments={"x-queue-mode": argument})
        assert {queue.name: queue.queue_mode for queue in broker.queues()} == {"before": mode, "after": mode}
    with Broker(data_dir=data_dir, queue_mode_precedence="policy") as broker:
        assert broker.queue("before").queue_mode == mode


@pytest.mark.parametrize("argument", [None, "default", "lazy"])
def test_set_queue_mode(disk_broker, disk_channel, name, argument):
    """QS-49: what `Broker.set_queue_mode` sets overrides the argument until the queue's process ends."""
    disk_channel.queue(name, {} if argument is None else {"x-queue-mode": argument}, durable=True)
    disk_channel.fill(name, *map(str, range(100)))
    for mode in ("lazy", "default", "lazy", "lazy", "default"):
        disk_broker.set_queue_mode(name, mode)
        assert disk_broker.queue(name).queue_mode == mode
    other = {"lazy": "default"}.get(argument, "lazy")
    disk_broker.set_queue_mode(name, other)
    Inside(disk_broker).crash(name)
    disk_broker.wait_idle()
    disk_channel.ready(name)  # the queue's next process answers
    assert disk_broker.queue(name).queue_mode == (argument or "default") != other


def test_queue_mode_of_an_absent_queue_or_an_unknown_mode(disk_broker, disk_channel, name):
    """Both are refused with an error that names the reason."""
    with pytest.raises(BrokerError, match="404"):
        disk_broker.set_queue_mode(name, "lazy")
    disk_channel.queue(name)
    with pytest.raises(BrokerError, match="one of: default, lazy"):
        disk_broker.set_queue_mode(name, "idle")


@pytest.mark.parametrize("size", [20, 5000], ids=["embedded", "stored"])
def test_publish_consume(disk_broker, disk_channel, name, size):
    """Waves of 2000 messages are published and consumed in order while the mode changes."""
    disk_channel.queue(name, durable=True)
    disk_channel.confirm()
    published = consumed = 0

    def publish(count):
        nonlocal published
        with disk_channel.client.in_one_piece():
            for _ in range(count):
                disk_channel.publish(str(published).ljust(size), name, delivery_mode=2)
                published += 1
        assert len(disk_channel.confirms(published - count + 1, published)[0]) == count

    def consume(count):
        nonlocal consumed
        disk_channel.qos(count)
        tag = disk_channel.consume(name)
        events = disk_channel.deliveries(count)
        disk_channel.cancel(tag)
        assert [int(event.body) for event in events] == list(range(consumed, consumed + count))
        consumed += count
        disk_channel.ack(events[-1].tag, multiple=True)

    publish(WAVE)
    for mode in ("lazy", "default", "lazy", "default"):
        disk_broker.set_queue_mode(name, mode)
        publish(WAVE)
        consume(WAVE)
    consume(WAVE)
    disk_channel.expect_ready(name, 0)
    assert disk_channel.get(name) is None


def test_a_queue_changes_its_mode_while_it_is_consumed(disk_broker, disk_channel, name):
    """No message is lost or reordered when the mode changes between deliveries of one consumer."""
    disk_channel.queue(name, durable=True)
    disk_channel.fill(name, *(f"{number}" for number in range(WAVE)))
    disk_channel.qos(100)
    disk_channel.consume(name)
    for start in range(0, WAVE, 100):
        disk_broker.set_queue_mode(name, "lazy" if start % 200 else "default")
        events = disk_channel.deliveries(100)
        assert [int(event.body) for event in events] == list(range(start, start + 100))
        disk_channel.ack(events[-1].tag, multiple=True)


def test_a_listing_of_a_queue_whose_unacknowledged_bodies_are_on_disk(disk_broker, disk_channel, name):
    """A listing of a queue with unacknowledged bodies on disk does not wait for them."""
    disk_channel.queue(name, {"x-queue-mode": "lazy"}, durable=True)
    disk_channel.confirm()
    disk_channel.publish("x" * 5000, name, delivery_mode=2, timestamp=1000)
    disk_channel.confirms(1, 1)
    disk_channel.get(name)
    for mode in ("lazy", "default"):
        disk_broker.set_queue_mode(name, mode)
        info = disk_broker.queue(name)
        assert (info.messages_unacknowledged, info.queue_mode) == (1, mode)
