"""Messages that are dead-lettered more than once: cycles and how they are cut, and the order of deaths (AB-149 to
AB-153).
"""

import pytest


def link(channel, name, target, **arguments):
    """A queue that dead-letters into the queue `target`."""
    return channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target, **arguments})


def deaths(event):
    """Queue, reason and count of each entry of x-death, most recent first."""
    return [
        (entry.get("queue")[1].decode(), entry.get("reason")[1].decode(), entry.get("count")[1])
        for _, entry in event.headers.get("x-death")[1]
    ]


def test_expiring_round_trip_is_cut(channel, name):
    """Queue a dead-letters into b, and b into a. No consumer rejected the message, so the broker drops it before it
    returns to a (AB-153).

    When a later message arrives in `bell`, the first one was dropped.
    """
    a, b, bell = f"{name}-a", f"{name}-b", channel.queue(f"{name}-bell")
    link(channel, a, b, **{"x-message-ttl": 1})
    link(channel, b, a, **{"x-message-ttl": 1})
    link(channel, f"{name}-clock", bell, **{"x-message-ttl": 80})
    channel.publish("goes round", a)
    channel.publish("ring", f"{name}-clock")
    channel.take(bell, 1)
    assert (channel.ready(a), channel.ready(b)) == (0, 0)


def test_rejection_on_the_way_lets_a_message_come_back(channel, name):
    """AB-153: a message rejected from one queue comes back each time it expires in the other (delayed retry)."""
    work, wait = f"{name}-work", f"{name}-wait"
    link(channel, work, wait)
    link(channel, wait, work, **{"x-message-ttl": 1})
    channel.consume(work)
    channel.publish("retry me", work)
    for attempt in range(4):
        event = channel.delivery()
        if attempt:
            assert deaths(event) == [(wait, "expired", attempt), (work, "rejected", attempt)]
            assert not event.method.redelivered
        channel.reject(event.tag, requeue=False)
    channel.ack(channel.delivery().tag)


def test_expiry_is_cut_where_the_rejection_was_before_the_last_visit(channel, name, broker):
    """Only a rejection since the last death in that queue lets a message return there (AB-153).

    The message that expired in a and in b does not return to a.
    """
    if broker is None:
        pytest.skip("RabbitMQ 3.10 turns older entries of x-death round, so that this message goes round for ever")
    first, a, b, bell = f"{name}-first", f"{name}-a", f"{name}-b", channel.queue(f"{name}-bell")
    link(channel, first, a)
    link(channel, a, b, **{"x-message-ttl": 1})
    link(channel, b, a, **{"x-message-ttl": 1})
    link(channel, f"{name}-clock", bell, **{"x-message-ttl": 80})
    channel.publish("m", first)
    channel.reject(channel.get(first).tag, requeue=False)
    channel.publish("ring", f"{name}-clock")
    channel.take(bell, 1)
    assert (channel.ready(a), channel.ready(b)) == (0, 0)


def test_only_the_queue_of_the_cycle_is_skipped(channel, name):
    """The queue of the cycle is skipped, and other queues behind the dead-letter exchange get their copy (AB-153)."""
    dlx = channel.exchange(f"{name}-dlx", "fanout")
    other = channel.queue(f"{name}-other")
    channel.queue(name, {"x-dead-letter-exchange": dlx, "x-message-ttl": 1})
    channel.bind(name, dlx)
    channel.bind(other, dlx)
    channel.publish("m", name)
    (event,) = channel.take(other, 1)
    assert deaths(event) == [(name, "expired", 1)]
    assert channel.ready(name) == 0


@pytest.mark.parametrize("other", [{"queue": "elsewhere", "reason": "rejected", "count": 1}, "no table"])
def test_entries_of_others_that_disable_the_check(channel, name, broker, other):
    """A rejection, or an entry that is no table, before the entry of the queue disables the check for cycles (AB-153).
    The client wrote it here, on both sides of the entry, because some brokers reverse the order.
    """
    if broker is None and other == "no table":
        pytest.skip("RabbitMQ 3.10 loses this message")
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-2"})
    second = channel.queue(f"{name}-2")
    entry = {"queue": second, "reason": "expired", "count": 1}
    channel.publish(
        "m",
        name,
        headers={"x-death": [other, entry, {**other, "queue": "nowhere"} if isinstance(other, dict) else other]},
        expiration="1",
    )
    (event,) = channel.take(second, 1)
    assert event.body == b"m"


def test_entry_of_a_client_that_makes_a_cycle(channel, name):
    """AB-153: a target queue that has an entry is skipped, even if a client wrote it; another target gets its copy."""
    dlx = channel.exchange(f"{name}-dlx", "fanout")
    skipped, other = channel.queue(f"{name}-skipped"), channel.queue(f"{name}-other")
    for queue in (skipped, other):
        channel.bind(queue, dlx)
    channel.queue(name, {"x-dead-letter-exchange": dlx})
    channel.publish(
        "m", name, headers={"x-death": [{"queue": skipped, "reason": "expired", "count": 1}]}, expiration="1"
    )
    channel.take(other, 1)
    assert channel.ready(skipped) == 0


def test_death_counts_by_reason(channel, name):
    """Expired and rejected in one queue are two entries of x-death, each with exchange and keys of its first death
    (AB-150).
    """
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-2"})
    second = link(channel, f"{name}-2", name)
    channel.publish("m", name, expiration="1", headers={"CC": ["nowhere"]})
    channel.consume(second, "second")
    event = channel.delivery()
    assert deaths(event) == [(name, "expired", 1)]
    channel.reject(event.tag, requeue=False)
    channel.cancel("second")
    while (event := channel.get(name)) is None:
        pass
    channel.reject(event.tag, requeue=False)
    (event,) = channel.take(second, 1)
    counted = {(queue, reason): count for queue, reason, count in deaths(event)}
    assert counted == {(name, "rejected"): 1, (second, "rejected"): 1, (name, "expired"): 1}


def test_a_long_stretch_of_drops_is_counted_once_each(client, channel, name, inside):
    """When 2500 messages return to a queue of 10, each dropped one is counted once (AB-102, AB-154)."""
    holder = client.channel()
    channel.queue(name, {"x-max-length": 10})
    for number in range(2500):
        holder.publish(str(number), name)
        assert holder.get(name) is not None
    holder.close()
    assert channel.get_all(name) == [str(number).encode() for number in range(2490, 2500)]
    assert inside.call(lambda: inside.queue(name).role.dead_letterer.counts.dead["maxlen"]) == 2490
