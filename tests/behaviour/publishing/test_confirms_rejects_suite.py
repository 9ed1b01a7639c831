"""confirms_rejects_SUITE: its cases on one node (AB-103, AB-111, AB-113)."""

import pytest

from warren.amqp import methods as m

LIMITS = [
    {"x-overflow": "reject-publish", "x-max-length": 12},
    {"x-overflow": "reject-publish-dlx", "x-max-length": 12},
]
COUNT = 30_000


@pytest.mark.parametrize("arguments", LIMITS, ids=["reject_publish", "reject_publish_dlx"])
def test_confirms_rejects_conflict(client, name, arguments):
    """Under publishes mixed with gets each number gets one outcome, and none that an earlier multiple covered."""
    publisher, getter = client.channel(), client.channel()
    publisher.queue(name, arguments)
    publisher.confirm()
    for start in range(1, COUNT + 1, 1000):
        with client.in_one_piece():
            for number in range(start, start + 1000):
                publisher.publish(b"HI", name)
                if number % 10 == 0:
                    getter.send(m.BasicGet(queue=name, no_ack=True))
        publisher.confirms(start, start + 999)
        for _ in range(100):
            getter.wait(m.BasicGetOk, m.BasicGetEmpty)
    assert not publisher.pending


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_policy_resets_to_default(broker, inside, channel, name, overflow):
    """A full queue refuses a publish while a policy sets its overflow; without that key it drops its head (AB-103)."""
    channel.queue(name, {"x-max-length": 1})
    broker.set_policy(name, f"^{name}$", {"overflow": overflow})
    inside.await_settings(name, lambda settings: settings.overflow == overflow)
    channel.confirm()
    channel.publish("1", name)
    channel.publish("2", name)
    assert channel.confirms(1, 2) == ([1], [2])
    broker.set_policy(name, f"^{name}$", {"max-length": 1})
    inside.await_settings(name, lambda settings: settings.overflow != overflow)
    channel.publish("3", name)
    assert channel.confirms(3, 3) == ([3], [])
    assert channel.get_all(name) == [b"3"]
    broker.clear_policy(name)


def test_dead_queue_rejects(channel, inside, name):
    """A publish to a queue whose process was killed for good is nacked (AB-111)."""
    channel.queue(name, durable=True)
    channel.confirm()
    channel.publish("HI", name)
    assert channel.confirms(1, 1) == ([1], [])
    inside.crash_for_good(name)
    channel.publish("HI", name)
    assert channel.confirms(2, 2) == ([], [2])


def test_mixed_dead_alive_queues_reject(channel, inside, name):
    """A message routed to a dead and a live queue is nacked (AB-111)."""
    dead, alive = channel.queue(f"{name}-dead", durable=True), channel.queue(f"{name}-alive", durable=True)
    for queue in (dead, alive):
        channel.bind(queue, "amq.direct", name)
    channel.confirm()
    channel.publish("HI", name, "amq.direct")
    assert channel.confirms(1, 1) == ([1], [])
    inside.crash_for_good(dead)
    channel.publish("HI", name, "amq.direct")
    assert channel.confirms(2, 2) == ([], [2])
    assert channel.ready(alive) == 2


# --- queues that cannot be used (AB-63) ---


@pytest.mark.parametrize(
    "method", [m.QueueDeclare(), m.QueueDeclare(passive=True), m.BasicGet(), m.BasicConsume(), m.QueuePurge()]
)
def test_dead_queue_is_reported(channel, inside, name, method):
    """AB-63: a method on a queue that crashed for good is refused with 404, and the text says so."""
    channel.queue(name)
    inside.crash_for_good(name)
    method.queue = name
    channel.refuses(404, f"queue '{name}' in vhost '/' has crashed and failed to restart", method)


def test_dead_queue_can_be_deleted(channel, inside, name):
    """A queue that crashed for good can be deleted and declared anew (AB-63)."""
    channel.queue(name)
    inside.crash_for_good(name)
    assert channel.delete(name) == 0
    channel.queue(name)
    channel.publish("alive", name)
    assert channel.get(name).body == b"alive"


def test_queue_that_crashed_once_is_used_again(channel, client, inside, name):
    """AB-126: a consumer with x-cancel-on-ha-failover is cancelled; the queue is restarted."""
    channel.queue(name)
    channel.consume(name, "t", {"x-cancel-on-ha-failover": True})
    channel.confirm()
    inside.crash(name)
    assert channel.wait(m.BasicCancel).method.consumer_tag == "t"
    # The declare in `ready` waits for the restart (AB-63); a publish that overtakes it would be refused (AB-111).
    assert channel.ready(name) == 0
    channel.publish("again", name)
    assert channel.confirms(1, 1) == ([1], [])
    assert channel.get(name).body == b"again"


def test_acks_for_a_crashed_queue_are_accepted(channel, inside, name):
    """AB-86: settling deliveries of the dead process has no effect."""
    channel.queue(name)
    channel.publish("1", name)
    event = channel.get(name)
    inside.crash(name)
    inside.broker.wait_idle()
    channel.ack(event.tag)
    assert channel.ready(name) == 0
