"""How queues end: auto-delete, x-expires, deletion; and how consumers are notified (AB-84 to AB-86, AB-93, AB-126)."""

from time import monotonic

import pytest

from warren.amqp import methods as m

from ..wire import CAPABILITIES


def gone(channel, name):
    channel.refuses(404, f"no queue '{name}' in vhost '/'", m.QueueDeclare(queue=name, passive=True))


# --- auto-delete ------------------------------------------------------------------------------------------------------


def test_auto_delete_queue_goes_with_its_last_consumer(channel, name):
    """An auto-delete queue ends when its last consumer leaves: not before it had one, and not with the first of two.
    basic.get makes no consumer (AB-85).
    """
    channel.queue(name, auto_delete=True)
    channel.publish("1", name)
    channel.get(name, no_ack=True)
    channel.consume(name, "a")
    channel.consume(name, "b")
    channel.cancel("a")
    assert channel.declare(name, passive=True).consumer_count == 1
    channel.cancel("b")
    gone_soon(channel, name)


def gone_soon(channel, name):
    """Publish mandatory messages until one is returned: then the queue is gone from the routing table."""
    channel.confirm()
    number = 0
    while not any(isinstance(event.method, m.BasicReturn) for event in channel.pending):
        number += 1
        channel.publish("", name, mandatory=True)
        channel.confirms(number, number)


@pytest.mark.parametrize("end", ["channel", "connection", "death"])
def test_auto_delete_queue_goes_with_its_consumers_channel(connect, name, end):
    """An auto-delete queue ends when its consumer's channel or connection closes, or its client dies (AB-85)."""
    client = connect()
    channel = client.channel()
    channel.queue(name, auto_delete=True)
    channel.consume(name)
    if end == "channel":
        channel.close()
    elif end == "connection":
        client.close()
    else:
        client.abort()
    gone_soon(connect().channel(), name)


def test_auto_delete_queue_stays_until_it_had_a_consumer(connect, name):
    """An auto-delete queue that has had no consumer outlives the connection that declared it (AB-85)."""
    client = connect()
    client.channel().queue(name, auto_delete=True)
    client.close()
    other = connect().channel()
    assert other.ready(name) == 0
    other.delete(name)


# --- x-expires --------------------------------------------------------------------------------------------------------


def test_unused_queue_expires(channel, connect, name):
    """A queue that nobody uses expires. Its messages are not dead-lettered, and a publish is no use of it (AB-93)."""
    channel.queue(f"{name}-dead")
    begun = monotonic()
    channel.queue(name, {"x-expires": 60, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    gone_soon(channel, name)
    assert monotonic() - begun >= 0.060
    assert channel.ready(f"{name}-dead") == 0


def test_consumed_queue_does_not_expire(channel, name):
    """A queue with a consumer does not expire; the time begins when the last consumer leaves (AB-93)."""
    channel.queue(
        f"{name}-clock",
        {"x-message-ttl": 800, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-bell"},
    )
    channel.queue(f"{name}-bell")
    channel.queue(name, {"x-expires": 400})
    channel.consume(name, "t")
    channel.consume(f"{name}-bell", "bell", no_ack=True)
    channel.publish("wait 800 ms", f"{name}-clock")
    channel.delivery()
    assert channel.declare(name, passive=True).consumer_count == 1
    begun = monotonic()
    channel.cancel("t")
    gone_soon(channel, name)
    assert monotonic() - begun >= 0.400


@pytest.mark.parametrize("use", ["declare", "passive", "get"])
def test_use_prolongs_the_life_of_a_queue(channel, name, use):
    """AB-93: an active declare, a passive one and basic.get count as uses of the queue."""
    arguments = {"x-expires": 150}
    begun = monotonic()
    channel.queue(name, arguments)
    while monotonic() - begun < 0.400:
        if use == "get":
            assert channel.get(name) is None
        else:
            channel.declare(name, arguments, passive=use == "passive")
    gone_soon(channel, name)


def test_redeclared_queue_is_another_one(channel, name):
    """A queue that is declared again after its deletion does not have the bindings and messages of the old
    one (AB-86).
    """
    channel.queue(name)
    channel.bind(name, "amq.direct", name)
    channel.publish("old", name)
    assert channel.delete(name) == 1
    channel.queue(name)
    channel.publish("unbound", name, "amq.direct")
    assert channel.get(name) is None


# --- cancel notifications ---------------------------------------------------------------------------------------------


def test_a_deletion_with_which_many_exchanges_go_tells_the_number_of_messages(channel, name):
    """A queue with which many auto-delete exchanges go, whose bindings are removed in steps, is not killed meanwhile,
    so the deletion is answered with its number of messages (AB-86).
    """
    channel.queue(name)
    for number in range(1100):
        channel.exchange(f"{name}.{number}", "fanout", auto_delete=True)
        channel.bind(name, f"{name}.{number}")
    channel.confirm()
    channel.publish("1", name)
    channel.confirms(1, 1)
    assert channel.delete(name) == 1


def test_consumers_of_a_deleted_queue_are_cancelled(client, connect, name):
    """Each consumer of a deleted queue gets basic.cancel with nowait, and its unacknowledged deliveries can still be
    settled (AB-126).
    """
    watcher = client.channel()
    watcher.queue(name)
    watcher.consume(name, "a")
    watcher.consume(name, "b")
    watcher.publish("1", name)
    delivery = watcher.delivery()
    connect().channel().delete(name)
    cancelled = [watcher.wait(m.BasicCancel).method for _ in range(2)]
    assert sorted(method.consumer_tag for method in cancelled) == ["a", "b"]
    assert all(method.nowait for method in cancelled)
    watcher.ack(delivery.tag)
    watcher.queue(name)
    watcher.consume(name, "a")
    watcher.publish("2", name)
    assert watcher.delivery().body == b"2"


def test_a_consumer_that_is_left_keeps_an_auto_delete_queue(client, name):
    """While one of two consumers is left, an auto-delete queue stays, and that consumer gets no basic.cancel (AB-85,
    AB-126).
    """
    watcher = client.channel()
    watcher.queue(name, auto_delete=True)
    watcher.consume(name, "a")
    other = client.channel()
    other.consume(name, "b")
    other.close()
    assert watcher.quiet(name)
    assert not watcher.pending


def test_the_owner_of_a_deleted_exclusive_queue_is_notified(client, connect, name):
    """AB-84, AB-126: only the owner can have consumers on it."""
    owner = client.channel()
    owner.queue(name, exclusive=True)
    owner.consume(name, "mine")
    owner.delete(name)
    assert owner.wait(m.BasicCancel).method.consumer_tag == "mine"


def test_without_the_capability_there_is_no_notification(connect, name):
    """AB-126: the client gets no basic.cancel, and the consumer tag is free again."""
    mute = connect(capabilities={**CAPABILITIES, "consumer_cancel_notify": False}).channel()
    mute.queue(name)
    mute.consume(name, "a")
    connect().channel().delete(name)
    mute.queue(name)
    mute.consume(name, "a")
    assert not mute.pending


def test_deleting_a_queue_confirms_and_discards(channel, name):
    """The deletion of a queue confirms its messages and does not dead-letter them (AB-86)."""
    channel.queue(f"{name}-dead")
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    channel.confirm()
    channel.publish("1", name)
    channel.publish("2", name)
    channel.confirms(1, 2)
    channel.get(name)
    assert channel.delete(name) == 1
    assert channel.ready(f"{name}-dead") == 0
