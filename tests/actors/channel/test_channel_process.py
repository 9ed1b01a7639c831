"""A channel between a stub connection and queues: confirms, errors and pipelining, crashes of queues, prefetch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from warren.runtime.exit_reason import NOCONNECTION, NORMAL, ExitKind, ExitReason

from ..stage import CRASHED, DELETED, Stage, Stub

NOT_FOUND = AmqpError(404, "no queue 'x' in vhost '/'")
HOME_STOPS = ExitReason(ExitKind.EXIT, "its node stops")


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Writer(Stub):
    """Stands for a connection whose socket takes everything at once."""

    def on_output(self, sender, pieces, notices):
        self.received.append(("output", pieces, notices))
        for address, _, channel_id, count, _ in notices:
            self.send(address, ("sent", channel_id, count))


class Slow(Stub):
    """Stands for a Metadata that answers declares only at `release`."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def on_declare_queue(self, sender, *fields):
        self.asked.append(sender)

    def on_release(self, sender, value):
        for handle in self.asked:
            self.reply_error(handle, value) if isinstance(value, Exception) else self.reply(handle, value)


def kinds(frames):
    return [type(frame) for frame in frames if not isinstance(frame, bytes)]


# --- publishing ---


def test_confirms_come_when_every_queue_has_confirmed(stage):
    """A publish is confirmed when every queue has confirmed it. Publishes are numbered from 1, and each queue gets one
    entry for a run (AB-110, AB-111).
    """
    one, other = stage.queue("one", process=Stub), stage.queue("other", process=Stub)
    channel = stage.channel()
    channel.send(ConfirmSelect())
    channel.publish([b"a", b"b"], "one")
    channel.publish([b"c"], "other")
    stage.settle()
    assert kinds(channel.frames()) == [ConfirmSelectOk]
    ((channel_id, (entry,), *_),) = one.actor.take("publish")
    assert (channel_id, entry[3:5], len(entry[1])) == (channel.id, (1, True), 2)
    stage.tell(other.address, channel.address, "confirm", other.id, [(3, 3)])
    stage.settle()
    assert channel.frames() == [BasicAck(3, False)]
    stage.tell(one.address, channel.address, "confirm", one.id, [(1, 2)])
    stage.settle()
    assert channel.frames() == [BasicAck(2, True)]


def test_every_publish_has_a_number_and_the_client_counts_from_confirm_select(stage):
    """Every publish has a number, by which a queue can name it; the first delivery tag of a confirm is 1 all the same
    (AB-110).
    """
    queue, channel = stage.queue(process=Stub), stage.channel()
    channel.publish([b"a", b"b"])
    channel.publish([b"nowhere"], "no queue")
    for _ in range(2):
        channel.send(ConfirmSelect())  # the second one changes nothing
        channel.publish([b"c", b"d"])
    stage.settle()
    runs = [entry for _, entries, *_ in queue.actor.take("publish") for entry in entries]
    assert [(len(entry[1]), *entry[3:5]) for entry in runs] == [(2, 1, False), (2, 4, True), (2, 6, True)]
    assert kinds(channel.frames()) == [ConfirmSelectOk, ConfirmSelectOk]
    stage.tell(queue.address, channel.address, "confirm", queue.id, [(4, 6)])
    stage.settle()
    assert channel.frames() == [BasicAck(3, True)]
    stage.tell(queue.address, channel.address, "refuse", queue.id, [(7, 7)])
    stage.settle()
    assert channel.frames() == [BasicNack(4, False, False)]


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (CRASHED, BasicNack),
        (ExitReason(ExitKind.OVERLOAD, "9 messages wait"), BasicNack),
        (ExitReason(ExitKind.EXIT, "3"), BasicNack),
        (DELETED, BasicAck),
        (NORMAL, BasicAck),
    ],
)
def test_the_end_of_a_queue_settles_what_it_owed(stage, end, answer):
    """A queue that crashes refuses its unanswered publishes; at any other end they count as confirmed (AB-111)."""
    queue, channel = stage.queue(process=Stub), stage.channel()
    channel.send(ConfirmSelect())
    channel.publish([b"a", b"b"])
    stage.settle()
    channel.frames()
    stage.base.end(stage.base.cells[queue.address.actorAddressString], end)
    stage.settle()
    (frame,) = channel.frames()
    assert (type(frame), frame.delivery_tag, frame.multiple) == (answer, 2, True)


def test_a_transaction_ends_when_the_queue_crashes(stage):
    """The crash of a queue counts as a refusal, and fails the tx.commit that waits for its confirms (AB-116)."""
    queue, channel = stage.queue(process=Stub), stage.channel()
    channel.send(TxSelect())
    channel.publish([b"a"])
    channel.send(TxCommit())
    stage.settle()
    assert TxCommitOk not in kinds(channel.frames())
    stage.crash(queue.address)
    # `crash` sends an unknown message, which does not end a stub, because a stub takes every message.
    stage.base.end(stage.base.cells[queue.address.actorAddressString], CRASHED)
    stage.settle()
    (close,) = channel.frames()
    assert (type(close), close.reply_code, close.reply_text) == (
        ChannelClose,
        406,
        "PRECONDITION_FAILED - partial tx completion",
    )


# --- errors and pipelining ---


@pytest.fixture
def slow(stage):
    """A channel with a consumer, whose queue.declare waits until Metadata gets `release`."""
    stage.metadata = stage.create(Slow)
    stage.context = stage.context.__class__(
        "warren@test", stage.settings, stage.routing, stage.metadata, stage.alarms, stage.alarms
    )
    channel = stage.channel()
    stage.queue("held")
    channel.send(BasicConsume(queue="held", nowait=True), QueueDeclare(queue="x"))
    stage.settle()
    return channel


def test_publishes_behind_a_method_that_fails_give_their_credit_back(stage, slow):
    """Publishes that follow a failed method are dropped and their credit is returned; otherwise a blocked connection
    would never read the client's close-ok (FC-5, AB-54).
    """
    slow.publish([b"x"] * 400)
    stage.settle()
    connection = stage.actor(slow.connection)
    assert not connection.take("bump")
    stage.tell(slow.address, stage.metadata, "release", NOT_FOUND)
    stage.settle()
    assert connection.take("bump") == [(slow.id, 400)]
    assert kinds(slow.frames()) == [ChannelClose]


def test_a_close_behind_a_method_that_fails_is_answered(stage, slow):
    """A channel.close that follows a failed method is answered: the client gets the channel.close for the error, and
    close-ok for its own (AB-54).
    """
    slow.send(QueueDeclare(queue="y"), ChannelClose(200, "", 0, 0))
    stage.settle()
    stage.tell(slow.address, stage.metadata, "release", NOT_FOUND)
    stage.settle()
    assert kinds(slow.frames()) == [ChannelClose, ChannelCloseOk]
    assert not stage.is_alive(slow.address)


def test_a_channel_that_is_killed_while_it_waits_does_nothing_more(stage, slow):
    """Events that wait behind a method are dropped when the channel is killed."""
    queue = stage.queue(process=Stub)
    slow.publish([b"x"])
    stage.settle()
    stage.base.end(stage.base.cells[slow.address.actorAddressString], CRASHED)
    stage.settle()
    assert not queue.actor.take("publish")


def test_methods_that_wait_pause_the_reader(stage, slow):
    """The connection stops reading when too many methods wait in a channel, and goes on when half of them are done
    (FC-34).
    """
    connection = stage.actor(slow.connection)
    slow.send(*[BasicQos(0, 1, False)] * 1001)
    stage.settle()
    assert connection.take("pause_input") == [(1, True)]
    stage.tell(slow.address, stage.metadata, "release", NOT_FOUND)
    stage.settle()
    assert connection.take("pause_input") == [(1, False)]


# --- queues that crash and come back ---


def test_a_crashed_queue_cancels_its_consumers(stage):
    """A consumer with `x-cancel-on-ha-failover` ends when its queue crashes, and its client gets basic.cancel if it
    supports that (AB-126).
    """
    queue, channel, mute = stage.queue(), stage.channel(), stage.channel(cancel_notify=False)
    for each in (channel, mute):
        each.send(BasicConsume(queue="q", consumer_tag="t", arguments=table_from({"x-cancel-on-ha-failover": True})))
    stage.settle()
    channel.frames(), mute.frames()
    stage.crash(queue.address)
    stage.settle()
    assert channel.frames() == [BasicCancel("t", True)] and mute.frames() == []
    assert not channel.actor.consumers.by_tag and not channel.actor.queues.rows


@pytest.mark.parametrize(("end", "cancels"), [(CRASHED, 0), (NOCONNECTION, 1), (HOME_STOPS, 1)], ids=str)
def test_consumers_are_cancelled_when_the_home_of_their_queue_is_gone(stage, end, cancels):
    """When the home of a queue is gone, its consumers are cancelled. They once waited for a home that had stopped in
    order, and got their messages again only if it came back soon (AB-126).
    """
    queue, channel = stage.queue(), stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t"))
    stage.settle()
    channel.frames()
    stage.base.end(stage.base.cells[queue.address.actorAddressString], end)
    stage.settle()
    assert channel.frames() == [BasicCancel("t", True)] * cancels


@pytest.mark.parametrize("consumes_before", [True, False])
def test_a_node_that_stops_crashes_no_channel_that_waits_for_a_restart(stage, consumes_before):
    """When a node stops, Metadata ends before the channels do and no queue is restarted. A channel that waits for a
    restart must not crash then (AB-63).
    """
    queue, channel = stage.queue(), stage.channel()
    consume = BasicConsume(queue="q", consumer_tag="t")
    if consumes_before:
        channel.send(consume)
        stage.settle()
    stage.crash(queue.address)
    if not consumes_before:
        channel.send(consume)
    stage.settle()
    assert [BasicConsumeOk] * consumes_before == kinds(channel.frames())
    stage.base.end(stage.base.cells[stage.metadata.actorAddressString], NORMAL)
    stage.settle()
    assert stage.is_alive(channel.address)
    (answer,) = channel.frames()
    assert type(answer) is (BasicCancel if consumes_before else ChannelClose)


def test_a_node_that_stops_crashes_no_channel_that_waits_for_metadata(stage, slow):
    stage.base.end(stage.base.cells[stage.metadata.actorAddressString], NORMAL)
    stage.settle()
    assert stage.is_alive(slow.address)
    ((_, error),) = stage.actor(slow.connection).take("channel_failed")
    assert (error.code, error.reply_text) == (
        320,
        "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
    )


def test_acks_of_an_earlier_life_do_not_settle_messages_of_this_one(stage):
    """A restarted queue keeps its id and numbers its messages from 0, so acks of the dead process's deliveries must not
    reach it (AB-86).
    """
    channel = stage.channel(Writer)

    def live():
        queue = stage.queue()
        channel.send(BasicConsume(queue="q", consumer_tag="t", arguments=table_from({"x-cancel-on-ha-failover": True})))
        channel.publish([b"x", b"y"])
        stage.settle()
        assert kinds(channel.frames()) == [BasicConsumeOk, BasicDeliver, BasicDeliver]
        return queue

    stage.crash(live().address)
    stage.settle()
    channel.frames()
    second = live()
    channel.ack(2, multiple=True)
    stage.settle()
    assert second.actor.backing.totals().depth == 2
    channel.ack(4, multiple=True)
    stage.settle()
    assert second.actor.backing.totals().depth == 0


def test_a_queue_that_comes_back_starts_with_full_credit(stage):
    """The death of a queue unblocks a channel that has used up its credit with it. A grant that arrives later has no
    effect, and the queue's next process begins with full credit (FC-53, FC-55).
    """
    queue, channel = stage.queue(process=Stub), stage.channel()
    channel.publish([b"x"] * 450)
    stage.settle()
    credit = channel.actor.credit
    assert credit.blocked and credit.credit_from(queue.id) == -50
    stage.base.end(stage.base.cells[queue.address.actorAddressString], CRASHED)
    stage.settle()
    assert not credit.blocked
    stage.tell(stage.metadata, channel.address, "bump", queue.id, 200)
    again = stage.queue(process=Stub)
    channel.publish([b"x"])
    stage.settle()
    assert again.id == queue.id and credit.credit_from(again.id) == 399


@pytest.mark.parametrize("end", [CRASHED, DELETED])
def test_a_queue_that_ends_behind_an_error_of_the_channel_blocks_nobody(stage, end):
    """A channel that closes because of an error no longer waits for the credit of a queue, which may end meanwhile. Its
    connection gets the grants, and so reads the client's close-ok (FC-53, AB-54).
    """
    queue, channel = stage.queue(process=Stub), stage.channel()
    channel.publish([b"x"] * 400)
    channel.publish([b"x"] * 200)
    channel.publish([b"x"], exchange="no such exchange")
    stage.settle()
    assert kinds(channel.frames()) == [ChannelClose]
    stage.base.end(stage.base.cells[queue.address.actorAddressString], end)
    stage.settle()
    assert sum(amount for _, amount in stage.actor(channel.connection).take("bump")) == 600
    assert not channel.actor.credit.blocked


# --- the channel-wide limit (AB-127 to AB-129) ---


def test_both_limits_together_neither_stall_nor_overrun(stage):
    """With a prefetch of one message for the consumer and one for the channel, each ack lets the next message out
    (AB-128).
    """
    stage.queue()
    channel = stage.channel(Writer)
    channel.send(BasicQos(0, 1, False), BasicQos(0, 1, True), BasicConsume(queue="q", consumer_tag="t"))
    channel.publish([b"%d" % number for number in range(10)])
    for number in range(10):
        stage.settle()
        assert [frame for frame in channel.frames() if isinstance(frame, bytes)] == [b"%d" % number]
        channel.ack(number + 1)


def test_a_queue_returns_grants_that_it_cannot_use(stage):
    """A queue whose consumer is at its own prefetch returns its grants of the channel-wide limit, so that other
    consumers can use them (AB-128).
    """
    stage.queue("narrow"), stage.queue("wide")
    channel = stage.channel(Writer)
    channel.publish([b"n"] * 50, "narrow")
    channel.publish([b"w"] * 50, "wide")
    channel.send(BasicQos(0, 10, True), BasicQos(0, 1, False), BasicQos(0, 10, True))
    channel.send(BasicConsume(queue="narrow", consumer_tag="n"))
    stage.settle()
    channel.frames()
    channel.actor.consumers.prefetch = 0
    channel.send(BasicConsume(queue="wide", consumer_tag="w"))
    stage.settle()
    assert [frame for frame in channel.frames() if isinstance(frame, bytes)].count(b"w") == 9


moves = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from("ab"), st.integers(1, 15)),
    st.tuples(st.just("consume"), st.sampled_from("ab"), st.sampled_from([0, 0, 1, 3])),
    st.tuples(st.just("cancel"), st.integers(0, 5), st.none()),
    st.tuples(st.just("ack"), st.integers(0, 10), st.booleans()),
    st.tuples(st.just("requeue"), st.integers(0, 10), st.none()),
    st.tuples(st.just("limit"), st.sampled_from([0, 1, 2, 5, 12]), st.none()),
    st.tuples(st.just("get"), st.sampled_from("ab"), st.none()),
    st.tuples(st.just("settle"), st.none(), st.none()),
)


@given(st.integers(1, 6), st.lists(moves, max_size=40))
@settings(max_examples=60, deadline=None)
def test_grants_are_conserved_and_the_limit_holds(first_limit, plan):
    """AB-127 to AB-129: unacknowledged deliveries stay within the limit, no grant is lost, and all messages arrive."""
    with Stage() as stage:
        queues = {name: stage.queue(name) for name in "ab"}
        channel = stage.channel(Writer)
        channel.send(BasicQos(0, first_limit, True))
        limit, tags, published = first_limit, [], 0
        consumers, unacked = channel.actor.consumers, channel.actor.deliveries.unacked
        for name, first, second in plan:
            outstanding = [run.first + at for run in unacked for at in range(len(run.tags))]
            if name == "publish":
                channel.publish([b"x"] * second, first)
                published += second
            elif name == "consume":
                tags.append(f"t{len(tags)}")
                consumers.prefetch = second
                channel.send(BasicConsume(queue=first, consumer_tag=tags[-1]))
            elif name == "cancel" and tags:
                channel.send(BasicCancel(tags[first % len(tags)]))
            elif name == "ack" and outstanding:
                channel.ack(outstanding[first % len(outstanding)], second)
            elif name == "requeue" and outstanding:
                channel.send(BasicNack(outstanding[first % len(outstanding)], False, True))
            elif name == "limit":
                limit = first
                channel.send(BasicQos(0, first, True))
            elif name == "get":
                channel.send(BasicGet(queue=first))
            elif name == "settle":
                stage.settle()
                check_grants(stage, channel, queues, limit)
            if name in ("ack", "requeue"):
                stage.settle()
        for number, name in enumerate("ab"):
            consumers.prefetch = number  # only the last consumer of `b` has a prefetch
            channel.send(BasicConsume(queue=name, consumer_tag=f"last {name}"))
        stage.settle()
        check_grants(stage, channel, queues, limit)
        while sum(queue.actor.backing.totals().depth for queue in queues.values()):
            assert len(unacked), "messages are ready, nothing is outstanding, and nothing moves"
            channel.ack(0, multiple=True)
            stage.settle()
            check_grants(stage, channel, queues, limit)
        assert sum(isinstance(frame, bytes) for frame in channel.frames()) >= published
        assert channel.actor.state == "running"


def check_grants(stage, channel, queues, limit):
    """Assert that limiter and queues agree on the grants when nothing is in flight, and that deliveries respect the
    limit.
    """
    held = {}
    for queue in queues.values():
        record = queue.actor.channels.by_id.get(channel.id)
        if record is not None:
            assert record.granted >= 0
            if record.granted:
                held[queue.id] = record.granted
    assert channel.actor.limiter.granted == held
    if limit:
        # Deliveries that were made before the limit was set, and those of basic.get, may exceed it; new deliveries may
        # not.
        assert sum(held.values()) <= max(0, limit - len(channel.actor.deliveries.unacked))


def test_qos_answers_in_order(stage):
    """Each basic.qos gets one qos-ok, also if two arrive together (AB-56)."""
    channel = stage.channel()
    channel.send(BasicQos(0, 5, True), BasicQos(0, 0, True))
    stage.settle()
    assert kinds(channel.frames()) == [BasicQosOk, BasicQosOk]
