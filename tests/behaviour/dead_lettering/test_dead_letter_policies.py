"""The cases of dead_lettering_SUITE in which a policy sets the dead-letter exchange (amqp-broker section 17)."""

import pytest


@pytest.fixture
def policed(broker, inside, name):
    """`policed()` sets a policy by which the queue dead-letters into `<name>-policy`, and returns once the queue has
    applied it.
    """

    def policed():
        definition = {"dead-letter-exchange": "", "dead-letter-routing-key": f"{name}-policy"}
        broker.set_policy(name, f"^{name}$", definition, apply_to="queues")
        inside.await_settings(name, lambda settings: settings.dead_letter_exchange is not None)

    yield policed
    broker.clear_policy(name)


def test_dead_letter_policy(channel, name, policed):
    """A policy on a live queue applies to messages that were delivered before it was set, too (AB-145, AB-159)."""
    channel.queue(name)
    channel.queue(f"{name}-policy")
    for body in ("1", "2"):
        channel.publish(body, name)
    first, second = [channel.get(name).tag for _ in range(2)]
    channel.reject(first, requeue=False)
    assert channel.ready(f"{name}-policy") == 0
    policed()
    channel.reject(second, requeue=False)
    (event,) = channel.take(f"{name}-policy", 1)
    assert event.body == b"2"


@pytest.mark.parametrize(
    "is_set_before", [True, False], ids=["dead_letter_override_policy", "dead_letter_ignore_policy"]
)
def test_arguments_beat_a_policy(broker, channel, name, policed, is_set_before):
    """The dead-letter arguments decide, whether the policy was set before the declaration or after it (AB-158)."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    if is_set_before:
        channel.queue(name)
        policed()
        channel.delete(name)
    channel.queue(name, arguments)
    channel.queue(f"{name}-dead")
    channel.queue(f"{name}-policy")
    if not is_set_before:
        policed()
        broker.wait_idle()
    channel.publish("1", name)
    channel.reject(channel.get(name).tag, requeue=False)
    assert [event.body for event in channel.take(f"{name}-dead", 1)] == [b"1"]
    assert channel.ready(f"{name}-policy") == 0
