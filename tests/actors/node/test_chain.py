"""Credit along socket, connection, channel and queue: where each of them stops, how all go on, and how many messages a
mailbox may have (flow-control section 15).
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.frames import content_body
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ConnectionBlocked,
    QueueDeclare,
)
from warren.routing.changes import QueueRemoved

from ..chain import Books, Client, Eater, FrozenChannel, Valve
from ..stage import CRASHED, DELETED, Stage, Stub

I, M = 400, 200


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def opened(stage, **options):
    client = Client(stage, **options)
    client.send(1, ChannelOpen())
    client.go()
    return client


# --- pair_boundaries ---


@pytest.mark.parametrize("at_once", [1, 7, 399, 400, 1000])
def test_a_reader_stops_with_exactly_its_credit_handed_over(stage, monkeypatch, at_once):
    """A connection hands over exactly the 400 publishes of its credit, in order, however they arrive (pair_boundaries:
    FC-4, FC-24, FC-29).
    """
    monkeypatch.setattr("warren.actors.connection.channels.Channel", FrozenChannel)
    client = opened(stage)
    for first in range(0, 1000, at_once):
        client.publish(1, numbered(min(at_once, 1000 - first), first))
        client.go()
    (entry,) = client.actor.channels.by_number.values()
    frozen = stage.actor(entry.address)
    assert (len(frozen.contents), client.actor.state, client.actor.credit.credit_from(entry.channel_id)) == (
        I,
        "blocked",
        0,
    )
    for granted, total in [(1, 401), (200, 601), (400, 1000)]:
        stage.tell(stage.metadata, entry.address, "grant", granted)
        client.go()
        assert len(frozen.contents) == total
    assert list(map(content_body, frozen.contents)) == numbered(1000)
    assert client.actor.state == "running"


def test_a_grant_follows_exactly_every_m_taken(stage):
    """A channel grants M credits exactly after each M publishes that it has taken, however they were batched, and none
    while a queue gives it no credit (pair_boundaries: FC-5, FC-6, FC-11).
    """
    stage.queue(process=Stub)
    channel = stage.channel()
    granted = 0
    for count, sent, kept in [
        (199, 0, 0),
        (1, 200, 0),
        (1, 200, 0),
        (198, 200, 0),
        (1, 200, 200),
        (199, 200, 200),
        (450, 200, 800),
    ]:
        channel.publish([b"x"] * count)
        stage.settle()
        granted += sum(amount for _, amount in stage.actor(channel.connection).take("bump"))
        assert (granted, channel.actor.credit.deferred("connection")) == (sent, kept)


# --- cascade ---


def test_a_chain_that_filled_up_empties_when_its_end_opens(stage):
    """When a full queue grants credit again, everything up to the socket goes on without a timer, and nothing is lost
    or reordered (cascade: FC-8, FC-14, FC-59).
    """
    queue, client = stage.queue(process=Valve), opened(stage)
    books = Books(stage)
    timers = len(stage.base.timers)
    client.publish(1, numbered(5000))
    client.go()
    assert client.actor.state == "blocked" and I <= len(queue.actor.contents) <= 2 * I
    assert len(stage.base.timers) == timers
    stage.tell(stage.metadata, queue.address, "open")
    client.go()
    assert client.actor.state == "running" and not client.unsent
    assert list(map(content_body, queue.actor.contents)) == numbered(5000)
    assert books.turns and books.most["channel"] <= I


def test_one_exhausted_queue_is_enough_and_both_must_grant(stage):
    """A channel stays blocked while one of two queues gives it no credit, also after a grant that is too small
    (bump_partial: FC-9).
    """
    one, other, channel = stage.queue("one", process=Valve), stage.queue("other", process=Valve), stage.channel()
    for name in ("one", "other"):
        channel.publish([b"x"] * 450, name)
    stage.settle()
    credit = channel.actor.credit
    assert list(credit.credit_blocked) == [one.id, other.id]
    stage.tell(stage.metadata, one.address, "open")
    stage.tell(stage.metadata, channel.address, "bump", other.id, 50)
    stage.settle()
    assert list(credit.credit_blocked) == [other.id] and credit.credit_from(other.id) == 0
    stage.tell(stage.metadata, channel.address, "bump", other.id, 1)
    stage.settle()
    assert not credit.blocked


# --- mailbox_bound ---


def test_a_channel_that_waits_for_metadata_holds_what_its_credit_allows(stage):
    """While a channel waits for Metadata to answer a declare, its mailbox holds no more publishes than its credit
    allows (FC-59, FC-60).
    """
    client = opened(stage)
    Books(stage)
    client.send(1, QueueDeclare(queue="slow"))
    client.publish(1, numbered(3000))
    client.go()
    (entry,) = client.actor.channels.by_number.values()
    assert sum(len(event[4]) for event in stage.actor(entry.address).backlog) == I
    assert client.actor.state == "blocked"


def test_a_refused_method_lets_a_blocked_connection_go_on(stage):
    """When a method is refused, the publishes behind it are dropped and their credit is returned, so a blocked
    connection goes on and reads the client's close-ok (FC-5, AB-54).
    """
    client = opened(stage)
    stage.actor(stage.metadata).answers["declare_queue"] = None
    client.send(1, QueueDeclare(queue="slow"))
    client.publish(1, numbered(3000))
    client.go()
    (entry,) = client.actor.channels.by_number.values()
    channel = stage.actor(entry.address)
    (ref,) = channel._asks
    stage.tell(stage.metadata, entry.address, "$answer", ref, False, AmqpError(406, "no"))
    client.go()
    assert [close.reply_code for close in client.take(ChannelClose)] == [406]
    assert client.actor.state == "running" and not client.unsent


def test_a_client_that_does_not_read_stops_its_queue_after_two_hundred(stage):
    """A client that does not read stops its queue after 200 deliveries, and the bytes for its socket are bounded; other
    clients are served (slow_reader: FC-32, FC-35).
    """
    queues = [stage.queue(name) for name in ("a", "b")]
    slow, other = opened(stage), opened(stage)
    for name in ("a", "b"):
        slow.send(1, BasicConsume(queue=name, consumer_tag=name, no_ack=True))
    slow.go()
    slow.reads = False
    body = b"x" * 60_000
    for name in ("a", "b"):
        other.publish(1, [body] * 300, name)
    other.go()
    stage.until(
        lambda: all(
            not queue.actor.role.publish_delay.delayed and not queue.actor.role.publish_delay.is_timing
            for queue in queues
        )
    )
    other.go()
    for queue in queues:
        (consumer,) = queue.actor.role.consumers
        written = consumer.channel.unsent
        assert len(queue.actor.backing) >= 300 - 200 - 50 and written <= 200
    assert slow.actor.output.size <= 2 * 200 * 60_100
    assert "output" in slow.actor.pauses and other.actor.state == "running"
    other.send(1, BasicGet(queue="a", no_ack=True))
    other.go()
    assert other.take(BasicGetOk)
    slow.reads = True
    slow.go()
    assert len(slow.take(BasicDeliver)) == 599 and not slow.actor.pauses


# --- acks_pass, consumer_only, no_blocked_frame ---


def test_acks_and_gets_pass_a_queue_that_is_blocked(stage):
    """A queue that gets no credit from its store still serves consumers and gets; only publishers wait (acks_pass:
    FC-13, FC-31).
    """
    queue, publisher, consumer = stage.queue(), opened(stage), opened(stage)
    queue.actor.channels.credit.spend("store", I)
    publisher.publish(1, numbered(3000))
    publisher.go()
    assert publisher.actor.state == "blocked"
    consumer.send(1, BasicConsume(queue="q", consumer_tag="c"))
    consumer.go()
    delivered = len(consumer.take(BasicDeliver))
    assert delivered >= 200 and consumer.actor.state == "running"
    consumer.send(1, BasicAck(0, True))
    consumer.go()
    assert queue.actor.backing.totals().depth < 800 and publisher.actor.state == "blocked"
    stage.tell(stage.metadata, queue.address, "bump", "store", M)
    while consumer.received or queue.actor.role.publish_delay.delayed or queue.actor.role.publish_delay.is_timing:
        publisher.go(), consumer.go()
        if consumer.take(BasicDeliver):
            consumer.received.clear()
            consumer.send(1, BasicAck(0, True))
        stage.until(lambda: not queue.actor.role.publish_delay.is_timing)
    publisher.go(), consumer.go()
    assert publisher.actor.state == "running" and not publisher.unsent


def test_a_connection_that_only_consumes_is_never_blocked(stage):
    """A connection that only consumes is never blocked, because methods without content always pass (consumer_only:
    FC-24).
    """
    stage.queue()
    client = opened(stage)
    client.actor.credit.spend("exhausted", I)
    stage.tell(stage.alarms, client.address, "alarms", ("memory", "disk"))
    client.send(1, BasicConsume(queue="q"), QueueDeclare(queue="q", passive=True), BasicGet(queue="q"))
    client.go()
    assert client.actor.state == "running" and not client.unsent and len(client.received) > 4


def test_flow_sends_nothing_to_the_client(stage):
    """Missing credit sends the client nothing, although it announced the capability `connection.blocked`; an alarm on
    top of it does (no_blocked_frame: FC-27).
    """
    stage.queue(process=Valve)
    client = opened(stage)
    client.publish(1, numbered(2000))
    client.go()
    assert client.actor.state == "blocked" and not client.take(ConnectionBlocked)
    stage.tell(stage.alarms, client.address, "alarms", ("disk",))
    client.go()
    assert [frame.reason for frame in client.take(ConnectionBlocked)] == ["low on disk"]


# --- peer_death ---


@pytest.mark.parametrize("end", [CRASHED, DELETED])
def test_the_death_of_the_exhausted_queue_frees_the_connection(stage, end):
    """The end of a queue that gave no credit unblocks the connection at once (peer_death: FC-53, FC-55).

    The next queue of the name has full credit, and grants of the dead one are ignored.
    """
    queue, client = stage.queue(process=Valve), opened(stage)
    client.publish(1, numbered(2000))
    client.go()
    (entry,) = client.actor.channels.by_number.values()
    assert client.actor.state == "blocked"
    stage.routing.publish([QueueRemoved(stage.routing.queue("/", "q"))])
    stage.base.end(stage.base.cells[queue.address.actorAddressString], end)
    client.go()
    assert client.actor.state == "running" and not client.unsent
    again = stage.queue(process=Valve)
    stage.tell(stage.metadata, entry.address, "bump", again.id, 999)
    client.publish(1, numbered(10))
    client.go()
    assert stage.actor(entry.address).credit.credit_from(again.id) == I - 10


def test_the_death_of_the_exhausted_channel_frees_the_connection(stage, monkeypatch):
    """The end of a channel that gave no credit unblocks the connection, and the input that waits for its other channel
    is handled (FC-23, FC-54).
    """
    monkeypatch.setattr("warren.actors.connection.channels.Channel", FrozenChannel)
    client = opened(stage)
    client.send(2, ChannelOpen())
    client.publish(1, numbered(I))
    client.publish(2, numbered(5))
    client.go()
    first, second = client.actor.channels.by_number.values()
    assert client.actor.state == "blocked" and not stage.actor(second.address).contents
    stage.tell(first.address, client.address, "channel_closed", first.channel_id, False, [], [])
    client.go()
    assert client.actor.state == "running" and len(stage.actor(second.address).contents) == 5
    assert list(client.actor.credit.credit_blocked) == []


# --- flow_hold ---


def test_a_short_block_stays_visible_for_its_hold_time(stage):
    """A short block is shown for 1 s from its start on channel and queue, and for 5 s from its end on the connection
    (flow_hold: FC-41 to FC-43).
    """
    ahead = [0.0]
    now = stage.base.now
    stage.base.now = lambda: now() + ahead[0]  # type: ignore[method-assign]
    queue, client = stage.queue(), opened(stage)
    (entry,) = client.actor.channels.by_number.values()

    def states():
        return [
            stage.actor(address).on_info(None)["state"] for address in (client.address, entry.address, queue.address)
        ]

    assert states() == ["running", "running", "running"]
    queue.actor.channels.credit.spend("store", I)
    client.publish(1, numbered(2000))
    client.go()
    assert states() == ["flow", "flow", "flow"]
    stage.tell(stage.metadata, queue.address, "bump", "store", M)
    client.go()
    assert not client.actor.credit.blocked and states() == ["flow", "flow", "flow"]
    ahead[0] += 1.1
    assert states() == ["flow", "running", "running"]
    stage.tell(stage.alarms, client.address, "alarms", ("memory",))
    stage.settle()
    assert states()[0] == "blocking", "an alarm hides flow"
    stage.tell(stage.alarms, client.address, "alarms", ())
    stage.settle()
    assert states()[0] == "flow"
    ahead[0] += 4.0
    assert states() == ["running", "running", "running"]


# --- invariant ---


@given(st.integers(0, 1 << 30), st.sampled_from([(400, 200), (10, 3), (5, 5), (1, 1)]))
@settings(max_examples=12, deadline=None)
def test_credit_is_neither_lost_nor_made(seed, pair):
    """After every turn, under any schedule, through crashes, restarts and closed channels, the credit of each relation
    adds up (invariant: FC-12, FC-15).
    """
    rng = random.Random(seed)
    with Stage(credit_flow_default_credit=pair) as stage:
        books = Books(stage)
        queues = {name: stage.queue(name) for name in "ab"}
        eater, client = stage.create(Eater), opened(stage)
        client.send(1, ConfirmSelect())
        for queue in queues.values():
            queue.consume(eater)
        stage.base.budget = rng.choice((1, 2, 64))
        channels, latest = [1], 1
        for _ in range(rng.randint(5, 25)):
            act = rng.random()
            if act < 0.6:
                client.publish(
                    rng.choice(channels), [b"x"] * rng.choice((1, 3, 50, 300)), rng.choice(("a", "b", "nowhere"))
                )
            elif act < 0.7:
                latest += 1
                channels.append(latest)
                client.send(latest, ChannelOpen())
            elif act < 0.75 and len(channels) > 1:
                client.send(channels.pop(), ChannelClose(200, "", 0, 0))
            elif act < 0.82:
                name = rng.choice("ab")
                stage.crash(queues[name].address)
                client.go()
                queues[name] = stage.queue(name)
                queues[name].consume(eater)
            else:
                # Run only some of the turns that are due.
                rounds = iter(range(rng.randint(1, 6)))
                client.pump(rng.choice((20, 5000, 1 << 20)))
                stage.base.lanes.active.rotate(rng.randint(0, 3))
                with suppress(AssertionError):
                    stage.base.run_until(lambda left=rounds: next(left, None) is None, 0.01)
        while (
            client.unsent
            or client.actor.state != "running"
            or any(queue.actor.role.publish_delay.delayed for queue in queues.values())
        ):
            client.go()
            stage.until(lambda: all(not queue.actor.role.publish_delay.is_timing for queue in queues.values()))
        client.go()
        assert books.turns and books.most["channel"] <= pair[0] and books.most["queue"] <= 2 * pair[0]
        assert not any(stage.actor(entry.address).credit.blocked for entry in client.actor.channels.by_number.values())
