"""dead_lettering_SUITE: a test for each of its cases that needs no policy (amqp-broker section 17).

The cases with a policy are in `test_dead_letter_policies`.
"""

import time

import pytest

from warren.amqp.fields import Table
from warren.amqp.methods import QueueUnbind

from ..wire import table


class Pair:
    """A queue and its dead-letter queue."""

    def __init__(self, channel, name):
        self.channel = channel
        self.queue = name
        self.exchange = f"{name}-dlx"
        self.dead = f"{name}-dead"

    def declare(self, routing_key=None, kind="direct", exchange=None, **arguments):
        """A queue that dead-letters into the direct exchange `exchange`, to which the dead-letter queue is bound by its
        own name.
        """
        self.channel.exchange(self.exchange, kind)
        self.channel.queue(self.dead)
        self.channel.bind(self.dead, self.exchange, self.dead)
        known = {"x-dead-letter-exchange": self.exchange if exchange is None else exchange}
        if routing_key != "":
            known["x-dead-letter-routing-key"] = self.dead if routing_key is None else routing_key
        self.channel.queue(self.queue, {**known, **arguments})

    def held(self, *bodies, **properties):
        """The delivery tags of messages that were published and fetched."""
        for body in bodies:
            self.channel.publish(body, self.queue, **properties)
        return [self.channel.get(self.queue).tag for _ in bodies]

    def taken(self, count, queue=None):
        """Wait for `count` messages in the dead-letter queue, or another one, and assert that there are no more."""
        return self.channel.take(queue or self.dead, count)

    def taken_bodies(self, count, queue=None):
        return [event.body for event in self.taken(count, queue)]


@pytest.fixture
def pair(channel, name):
    return Pair(channel, name)


@pytest.fixture
def deaths(broker, inside):
    """`deaths(queue)` returns how many of its messages were dead-lettered, by reason (AB-154)."""
    return lambda queue: inside.call(lambda: dict(inside.queue(queue).role.dead_letterer.counts.dead))


def death(event, at=0):
    """An entry of x-death as `{field: (letter, value)}`."""
    letter, entries = event.headers.get("x-death")
    assert letter == "A" and entries[at][0] == "F"
    return {name: (letter, value) for name, letter, value in entries[at][1]}


def test_dead_letter_nack(channel, pair):
    """Only the message that was nacked without requeue is dead-lettered; the others are when they are nacked (AB-136,
    AB-144).
    """
    pair.declare()
    first, second, third = pair.held("1", "2", "3")
    channel.nack(first, requeue=False)
    assert pair.taken_bodies(1) == [b"1"]
    channel.nack(second, requeue=False)
    channel.nack(third, requeue=False)
    assert pair.taken_bodies(2) == [b"2", b"3"]


def test_dead_letter_nack_counter(channel, pair, deaths):
    """The rejected counter of dead_letter_nack is 3 (AB-154)."""
    pair.declare()
    for tag in pair.held("1", "2", "3"):
        channel.nack(tag, requeue=False)
    pair.taken(3)
    assert deaths(pair.queue) == {"rejected": 3, "expired": 0, "maxlen": 0, "delivery_limit": 0, "paced": 0}


def test_dead_letter_multiple_nack(channel, pair):
    """One multiple nack dead-letters all three in order (AB-136)."""
    pair.declare()
    channel.nack(pair.held("1", "2", "3")[-1], multiple=True, requeue=False)
    assert pair.taken_bodies(3) == [b"1", b"2", b"3"]


def test_dead_letter_nack_requeue(channel, pair):
    """Nack with requeue returns one message, nothing is dead-lettered (AB-134)."""
    pair.declare()
    _, second, _ = pair.held("1", "2", "3")
    channel.nack(second, requeue=True)
    assert channel.get_all(pair.queue) == [b"2"]
    channel.ack(0, multiple=True)
    assert channel.ready(pair.dead) == 0


def test_dead_letter_nack_requeue_multiple(channel, pair):
    """Multiple nack with requeue restores the order (AB-134)."""
    pair.declare()
    channel.nack(pair.held("1", "2", "3")[-1], multiple=True, requeue=True)
    assert channel.get_all(pair.queue) == [b"1", b"2", b"3"]
    assert channel.ready(pair.dead) == 0


def test_dead_letter_reject(channel, pair):
    """Only the message that was rejected without requeue is dead-lettered (AB-144)."""
    pair.declare()
    first, _, _ = pair.held("1", "2", "3")
    channel.reject(first, requeue=False)
    assert pair.taken_bodies(1) == [b"1"]
    assert channel.ready(pair.queue) == 0


def test_dead_letter_reject_many(channel, pair):
    """100 rejects arrive in publish order (AB-136)."""
    pair.declare()
    for tag in pair.held(*map(str, range(100))):
        channel.reject(tag, requeue=False)
    assert pair.taken_bodies(100) == [str(number).encode() for number in range(100)]


def test_dead_letter_reject_requeue(channel, pair):
    """Reject with requeue puts the message back at the head (AB-134)."""
    pair.declare()
    for body in ("1", "2", "3"):
        channel.publish(body, pair.queue)
    channel.reject(channel.get(pair.queue).tag, requeue=True)
    assert channel.get_all(pair.queue) == [b"1", b"2", b"3"]
    assert channel.ready(pair.dead) == 0


def test_dead_letter_max_length_drop_head(channel, pair):
    """Limit 1: the last stays, the first two are dead-lettered in order (AB-100)."""
    pair.declare(**{"x-max-length": 1})
    for body in ("1", "2", "3"):
        channel.publish(body, pair.queue)
    assert pair.taken_bodies(2) == [b"1", b"2"]
    assert channel.get_all(pair.queue) == [b"3"]


def test_dead_letter_max_length_drop_head_counter(channel, pair, deaths):
    """The maxlen counter of dead_letter_max_length_drop_head is 2 (AB-154)."""
    pair.declare(**{"x-max-length": 1})
    for body in ("1", "2", "3"):
        channel.publish(body, pair.queue)
    pair.taken(2)
    assert deaths(pair.queue)["maxlen"] == 2


def test_dead_letter_reject_requeue_reject_norequeue(channel, pair):
    """A message requeued once and then rejected is dead-lettered exactly once (AB-136)."""
    pair.declare()
    (tag,) = pair.held("1")
    channel.reject(tag, requeue=True)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (event,) = pair.taken(1)
    assert death(event)["count"] == ("l", 1)
    assert channel.ready(pair.queue) == 0


def test_dead_letter_max_length_reject_publish_dlx(channel, pair):
    """With the overflow reject-publish-dlx the first message stays and the others go to the dead-letter
    queue (AB-101).
    """
    pair.declare(**{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    channel.confirm()
    for body in ("1", "2", "3"):
        channel.publish(body, pair.queue)
    assert channel.confirms(1, 3) == ([1], [2, 3])
    events = pair.taken(2)
    assert [event.body for event in events] == [b"2", b"3"]
    assert death(events[0])["reason"] == ("S", b"maxlen")
    assert channel.get_all(pair.queue) == [b"1"]


def test_dead_letter_missing_exchange(channel, pair):
    """DLX absent at death: the message is lost; once it is declared the next one arrives (AB-146)."""
    pair.declare(exchange=f"{pair.queue}-later")
    first, second = pair.held("1", "2")
    channel.reject(first, requeue=False)
    assert channel.ready(pair.queue) == 0
    channel.exchange(f"{pair.queue}-later")
    channel.bind(pair.dead, f"{pair.queue}-later", pair.dead)
    channel.reject(second, requeue=False)
    assert pair.taken_bodies(1) == [b"2"]


def test_dead_letter_routing_key(channel, pair):
    """Without dead-letter key the original key is used; unroutable dead letters vanish (AB-147)."""
    pair.declare(routing_key="")
    first, second = pair.held("1", "2")
    channel.reject(first, requeue=False)
    assert channel.ready(pair.dead) == 0
    channel.bind(pair.dead, pair.exchange, pair.queue)
    channel.reject(second, requeue=False)
    (event,) = pair.taken(1)
    assert (event.body, event.method.exchange, event.method.routing_key) == (b"2", pair.exchange, pair.queue)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_dead_letter_routing_key_header(channel, pair, header):
    """dead_letter_routing_key_header_CC and _BCC: without a dead-letter key the keys of CC and BCC route the dead
    letter, although the BCC header is removed (AB-75, AB-147).
    """
    pair.declare(routing_key="")
    channel.publish("1", pair.queue, headers={header: [pair.dead]})
    assert pair.taken_bodies(1) == [b"1"]  # The message itself was also routed there by its header.
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (event,) = pair.taken(1)
    assert (event.body, event.headers.get("BCC")) == (b"1", None)
    assert (event.headers.get("CC") is not None) == (header == "CC")


def test_dead_letter_routing_key_cycle_max_length(channel, name):
    """A message dropped from the head into its own queue, by the default exchange, is dropped for good (AB-153)."""
    channel.queue(name, {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})
    channel.publish("1", name)
    channel.publish("2", name)
    assert channel.quiet(name)
    assert channel.get_all(name) == [b"2"]


def test_dead_letter_routing_key_cycle_max_length_counter(channel, name, deaths):
    """A message that is dropped in a cycle counts as one death all the same (AB-154)."""
    channel.queue(name, {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})
    channel.publish("1", name)
    channel.publish("2", name)
    assert channel.get_all(name) == [b"2"]
    assert deaths(name)["maxlen"] == 1


def test_dead_letter_routing_key_cycle_ttl(channel, name):
    """A message that expires into its own queue is dropped (AB-153). Another queue's dead letter shows when."""
    channel.queue(name, {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})
    channel.queue(
        f"{name}-clock",
        {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-bell"},
    )
    channel.queue(f"{name}-bell")
    channel.publish("1", name)
    channel.publish("2", name)
    channel.publish("now", f"{name}-clock")
    assert channel.take(f"{name}-bell", 1)
    assert channel.ready(name) == 0


def test_dead_letter_routing_key_cycle_with_reject(channel, name):
    """Rejection into the same queue loops as long as the client rejects (AB-153)."""
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})
    channel.consume(name, "t")
    channel.publish("1", name)
    for count in range(5):
        event = channel.delivery()
        assert (event.headers is not None and death(event)["count"] == ("l", count)) or count == 0
        channel.reject(event.tag, requeue=False)
    channel.ack(channel.delivery().tag)


def test_dead_letter_headers(channel, pair):
    """x-death carries queue, reason, time, exchange, count 1 and routing keys (AB-149)."""
    pair.declare()
    before = int(time.time())
    channel.reject(pair.held("1", headers={"kept": 1})[0], requeue=False)
    (event,) = pair.taken(1)
    entry = death(event)
    letter, seconds = entry.pop("time")
    assert letter == "T" and before <= seconds <= time.time()
    assert entry == {
        "count": ("l", 1),
        "reason": ("S", b"rejected"),
        "queue": ("S", pair.queue.encode()),
        "exchange": ("S", b""),
        "routing-keys": ("A", (("S", pair.queue.encode()),)),
    }
    assert event.headers.get("kept") == ("I", 1)
    assert (event.method.exchange, event.method.routing_key, event.method.redelivered) == (
        pair.exchange,
        pair.dead,
        False,
    )


def test_dead_letter_headers_reason_maxlen(channel, pair):
    """Reason maxlen (AB-149)."""
    pair.declare(**{"x-max-length": 1})
    channel.publish("1", pair.queue)
    channel.publish("2", pair.queue)
    (event,) = pair.taken(1)
    assert death(event)["reason"] == ("S", b"maxlen")


def test_dead_letter_headers_cycle(channel, pair):
    """A second death in the same queue for the same reason: one entry with count 2, otherwise as before (AB-150)."""
    pair.declare()
    channel.reject(pair.held("1")[0], requeue=False)
    (first,) = pair.taken(1)
    channel.publish(first.body, pair.queue, headers=first.headers)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (second,) = pair.taken(1)
    assert len(second.headers.get("x-death")[1]) == 1
    assert death(second) == {**death(first), "count": ("l", 2)}


def test_dead_letter_headers_are_sorted(channel, pair):
    """The headers of a dead letter come in the order of their names. An entry of x-death does from its second count on,
    and what is inside other headers stays as it is.
    """
    pair.declare()
    headers = {"z": 1, "B": {"z": 1, "a": 2}, "a": 3, "CC": ["no-queue"], "BCC": ["no-queue"], "x-e": None}
    channel.publish("1", pair.queue, headers=headers)
    event = channel.get(pair.queue)
    assert [name for name, _, _ in event.headers] == ["z", "B", "a", "CC", "x-e"]
    channel.reject(event.tag, requeue=False)
    (first,) = pair.taken(1)
    sorted_names = [
        "B",
        "a",
        "x-death",
        "x-e",
        *(f"x-first-death-{part}" for part in ("exchange", "queue", "reason")),
        "z",
    ]
    assert [name for name, _, _ in first.headers] == sorted_names
    assert [name for name, _, _ in first.headers.get("B")[1]] == ["z", "a"]
    assert list(death(first)) == ["count", "reason", "queue", "time", "exchange", "routing-keys"]
    channel.publish("2", pair.queue, headers=first.headers)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (second,) = pair.taken(1)
    assert [name for name, _, _ in second.headers] == sorted_names
    assert list(death(second)) == sorted(death(first))


def test_dead_letter_headers_BCC(channel, pair):
    """The BCC header is absent before and after (AB-75)."""
    pair.declare()
    channel.publish("1", pair.queue, headers={"CC": [f"{pair.queue}-cc"], "BCC": [pair.dead]})
    (before,) = pair.taken(1)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (after,) = pair.taken(1)
    assert before.headers.get("BCC") is None
    assert after.headers.get("BCC") is None
    assert death(after)["routing-keys"] == ("A", (("S", pair.queue.encode()), ("S", f"{pair.queue}-cc".encode())))


def test_dead_letter_headers_CC(channel, pair):
    """The CC header is kept if no dead-letter key is set (AB-147)."""
    pair.declare(routing_key="")
    channel.bind(pair.dead, pair.exchange, pair.queue)
    channel.publish("1", pair.queue, headers={"CC": [pair.dead]})
    pair.taken(1)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (event,) = pair.taken(1)
    assert event.headers.get("CC") == ("A", (("S", pair.dead.encode()),))


def test_dead_letter_headers_CC_with_routing_key(channel, pair):
    """The CC header is removed if one is set (AB-147)."""
    pair.declare()
    channel.publish("1", pair.queue, headers={"CC": [pair.dead]})
    (before,) = pair.taken(1)
    assert before.headers.get("CC") is not None
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    (after,) = pair.taken(1)
    assert after.headers.get("CC") is None


def test_dead_letter_headers_first_death(channel, pair):
    """x-first-death-* show the first death and do not change on the second (AB-151)."""
    pair.declare()
    final = channel.queue(f"{pair.queue}-final")
    middle = channel.queue(f"{pair.queue}-middle", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": final})
    channel.bind(middle, pair.exchange, pair.dead)
    channel.reject(pair.held("1")[0], requeue=False)
    pair.taken(1)
    expected = {
        "x-first-death-reason": b"rejected",
        "x-first-death-queue": pair.queue.encode(),
        "x-first-death-exchange": b"",
    }
    event = channel.get(middle)
    assert {name: event.headers.get(name) for name in expected} == {
        name: ("S", value) for name, value in expected.items()
    }
    channel.reject(event.tag, requeue=False)
    (event,) = pair.taken(1, final)
    assert {name: event.headers.get(name) for name in expected} == {
        name: ("S", value) for name, value in expected.items()
    }
    assert [death(event, at)["queue"][1].decode() for at in range(2)] == [middle, pair.queue]


def test_dead_letter_headers_first_death_route(channel, pair):
    """A headers exchange with all-with-x or any-with-x routes by x-first-death-* (AB-71)."""
    pair.declare(kind="headers", **{"x-max-length": 1})
    everything, either, none = (channel.queue(f"{pair.queue}-{suffix}") for suffix in ("all", "any", "none"))
    channel.call(QueueUnbind(queue=pair.dead, exchange=pair.exchange, routing_key=pair.dead))
    channel.bind(
        everything,
        pair.exchange,
        arguments={"x-match": "all-with-x", "x-first-death-reason": "maxlen", "x-first-death-queue": pair.queue},
    )
    channel.bind(
        either,
        pair.exchange,
        arguments={"x-match": "any-with-x", "x-first-death-reason": "maxlen", "x-first-death-queue": "other"},
    )
    channel.bind(none, pair.exchange, arguments={"x-match": "any-with-x", "x-first-death-reason": "expired"})
    channel.publish("1", pair.queue)
    channel.publish("2", pair.queue)
    assert pair.taken_bodies(1, everything) == pair.taken_bodies(1, either) == [b"1"]
    assert channel.ready(none) == 0


def test_dead_letter_ttl(channel, pair):
    """Queue TTL 1 ms dead-letters (AB-95)."""
    pair.declare(**{"x-message-ttl": 1})
    channel.publish("1", pair.queue)
    assert pair.taken_bodies(1) == [b"1"]


def test_dead_letter_headers_reason_expired(channel, pair):
    """Reason expired; no original-expiration for a queue TTL (AB-149)."""
    pair.declare(**{"x-message-ttl": 1})
    channel.publish("1", pair.queue)
    (event,) = pair.taken(1)
    assert death(event)["reason"] == ("S", b"expired")
    assert "original-expiration" not in death(event)


def test_dead_letter_headers_reason_expired_per_message(channel, pair):
    """The expiration property is removed and recorded (AB-148, AB-149)."""
    pair.declare()
    channel.publish("1", pair.queue, expiration="1", content_type="text/plain")
    (event,) = pair.taken(1)
    assert death(event)["original-expiration"] == ("S", b"1")
    assert (event.properties.expiration, event.properties.content_type) == (None, "text/plain")


def test_dead_letter_extra_bcc(channel, pair, inside):
    """Dead letters also reach the extra queue of their target (AB-79)."""
    pair.declare()
    extra = channel.queue(f"{pair.queue}-extra")
    inside.give_extra_queue(pair.dead, extra)
    channel.reject(pair.held("1")[0], requeue=False)
    assert pair.taken_bodies(1) == pair.taken_bodies(1, extra) == [b"1"]


# --- counters without a dead-letter exchange (AB-154) ---


def test_metric_maxlen(channel, name, deaths):
    """1000 publishes into a queue of length 1 are 999 deaths."""
    channel.queue(name, {"x-max-length": 1})
    for number in range(1000):
        channel.publish(str(number), name)
    assert channel.get_all(name) == [b"999"]
    assert deaths(name) == {"maxlen": 999, "rejected": 0, "expired": 0, "delivery_limit": 0, "paced": 0}


def test_metric_rejected(channel, name, deaths):
    """1000 rejects are 1000 deaths."""
    channel.queue(name)
    channel.consume(name)
    for number in range(1000):
        channel.publish(str(number), name)
    for event in channel.deliveries(1000):
        channel.reject(event.tag, requeue=False)
    channel.ready(name)
    assert deaths(name) == {"maxlen": 0, "rejected": 1000, "expired": 0, "delivery_limit": 0, "paced": 0}


@pytest.mark.parametrize(("arguments", "properties"), [({"x-message-ttl": 0}, {}), ({}, {"expiration": "0"})])
def test_metric_expired(channel, name, deaths, arguments, properties):
    """metric_expired_queue_msg_ttl and metric_expired_per_msg_msg_ttl: 1000 publishes with TTL 0 are 1000 deaths
    (AB-96).
    """
    channel.queue(name, arguments)
    for number in range(1000):
        channel.publish(str(number), name, **properties)
    assert channel.get(name) is None
    assert deaths(name) == {"maxlen": 0, "rejected": 0, "expired": 1000, "delivery_limit": 0, "paced": 0}


# --- what clients may have written into x-death ---


def died(pair, headers):
    """The headers of a message published with these headers, after it was rejected."""
    pair.declare()
    channel = pair.channel
    channel.publish("1", pair.queue, headers=headers)
    channel.reject(channel.get(pair.queue).tag, requeue=False)
    return pair.taken(1)[0]


def test_x_death_that_is_no_array_is_replaced(pair):
    """An x-death that is no array is replaced, and no x-first-death headers are added (AB-152)."""
    event = died(pair, {"x-death": "nonsense"})
    assert death(event)["count"] == ("l", 1)
    assert len(event.headers.get("x-death")[1]) == 1
    assert event.headers.get("x-first-death-queue") is None


def test_doubles_in_x_death_are_merged(pair):
    """AB-150: an entry without a count gets the number of its doubles, plus one for this death."""
    entry = {"queue": pair.queue, "reason": "rejected"}
    other = {"queue": "other", "reason": "rejected", "count": 7}
    event = died(pair, {"x-death": [entry, other, entry]})
    assert len(event.headers.get("x-death")[1]) == 2
    assert death(event)["count"] == ("l", 3)
    assert death(event, 1)["queue"] == ("S", b"other")


def test_lone_entry_without_count(pair):
    """A lone entry without a count gets the count 1 (AB-150)."""
    event = died(pair, {"x-death": [{"queue": pair.queue, "reason": "rejected"}]})
    assert death(event)["count"] == ("l", 1)


def test_other_entries_keep_their_order(pair, broker):
    """Other entries of x-death keep their order, the most recent first (AB-149, AB-150)."""
    if broker is None:
        pytest.skip("RabbitMQ 3.10 turns the other entries round at each death")
    entries = [{"queue": f"q{number}", "reason": "expired", "count": number} for number in (1, 2, 3)]
    event = died(pair, {"x-death": entries})
    assert [death(event, at)["queue"][1].decode() for at in range(4)] == [pair.queue, "q1", "q2", "q3"]
    assert Table(event.headers.get("x-death")[1][1][1]) == table(entries[0])
