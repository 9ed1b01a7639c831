"""A consumer of a sharded queue, of which shards crash: what becomes of deliveries on their way (FC-93, AB-86)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.amqp.fields import table_from
from warren.amqp.frames import build_content
from warren.amqp.methods import BasicCancel, BasicConsume, BasicConsumeOk, BasicGet, BasicGetOk
from warren.runtime.exit_reason import NOCONNECTION
from warren.store.messages.message import FetchedMessages, Origin

from ...stage import CRASHED, PROPS, Stage, Stub

ORIGIN = Origin("", ("q",), False, 0, 1)
CONTENT = build_content(1, PROPS, b"body", 4096)
CANCELS = table_from({"x-cancel-on-ha-failover": True})


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Answering(Stub):
    """Stands for a queue that answers questions of the names in `answers` at once, and others at `release`."""

    def __init__(self):
        super().__init__()
        self.answers = {"consume": True, "cancel": None}
        self.asked = []

    def on_consume(self, sender, *fields):
        self._answer(sender, "consume")

    def on_cancel(self, sender, *fields):
        self.received.append(("cancel", *fields))
        self._answer(sender, "cancel")

    def on_counts(self, sender):
        self._answer(sender, "counts")

    def on_get(self, sender, *fields):
        self._answer(sender, "get")

    def _answer(self, sender, name):
        if name in self.answers:
            self.reply(sender, self.answers[name])
        else:
            self.asked.append(sender)

    def on_release(self, sender, value):
        for handle in self.asked:
            self.reply(handle, value)
        self.asked.clear()


class Registering(Answering):
    """The same, which keeps the tags of its consumers."""

    def __init__(self):
        super().__init__()
        self.consumers = []

    def on_consume(self, sender, channel_id, address, tag, *fields):
        self.consumers.append(tag)
        self.reply(sender, True)


def sharded(stage, count=2):
    """The logical queue `q`, and its shards."""
    whole = stage.queue("q", process=Answering)
    stage.routing.put_queue(replace(whole.row, shards=count))
    return whole, [shard(stage, f"q_{index}") for index in range(count)]


def shard(stage, name):
    """A process of the shard of this name, which replaces an earlier one."""
    found = stage.queue(name, process=Answering)
    found.row = replace(found.row, shard_of="q")
    stage.routing.put_queue(found.row)
    return found


def deliver(stage, channel, queue, tags, needs_ack=True):
    run = ORIGIN, False, tags if needs_ack else None, [CONTENT] * len(tags)
    stage.tell(queue.address, channel.address, "deliver", queue.id, "t", [run])


def kinds(channel):
    return [type(frame) for frame in channel.frames() if not isinstance(frame, bytes)]


def crash(stage, queue):
    stage.base.end(stage.base.cells[queue.address.actorAddressString], CRASHED)


@pytest.mark.parametrize("prefetch", [0, 5])
def test_deliveries_for_a_consumer_that_was_cancelled_go_back(stage, prefetch):
    """When a shard crashes and its consumer is cancelled for that, deliveries of the other shards that arrive later go
    back to these, and count as sent. They once stayed unacknowledged until the channel ended.
    """
    _, (one, other) = sharded(stage)
    channel = stage.channel()
    channel.actor.consumers.prefetch = prefetch
    channel.send(BasicConsume(queue="q", consumer_tag="t", arguments=CANCELS))
    stage.settle()
    crash(stage, one)
    stage.settle()
    assert kinds(channel) == [BasicConsumeOk, BasicCancel]
    deliver(stage, channel, other, range(3))
    deliver(stage, channel, one, range(3))  # its process has ended
    stage.settle()
    assert kinds(channel) == []
    assert other.actor.take("settle") == [(channel.id, "requeue", [range(3)])]
    assert other.actor.take("sent") == [(channel.id, 3)]


def test_deliveries_without_acknowledgement_for_such_a_consumer_count_as_sent(stage):
    _, (one, other) = sharded(stage)
    channel = stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t", no_ack=True, arguments=CANCELS))
    stage.settle()
    crash(stage, one)
    deliver(stage, channel, other, range(3), needs_ack=False)
    stage.settle()
    assert other.actor.take("sent") == [(channel.id, 3)] and not other.actor.take("settle")


def test_a_channel_limit_does_not_count_what_went_back(stage):
    """What goes back to a shard leaves room for other deliveries within the limit of the channel."""
    _, (one, other) = sharded(stage)
    channel = stage.channel()
    limiter = channel.actor.limiter
    limiter.set_limit(4, ())
    channel.send(BasicConsume(queue="q", consumer_tag="t", arguments=CANCELS))
    stage.settle()
    stage.tell(other.address, channel.address, "limiter_request", other.id, 4)
    stage.settle()
    assert limiter.granted == {other.id: 4}
    crash(stage, one)
    deliver(stage, channel, other, range(4))
    stage.settle()
    assert limiter.granted == {}


def test_early_deliveries_of_a_shard_that_crashes_are_dropped(stage):
    """Deliveries that came before consume-ok are not delivered if their shard has crashed by then: the ack tags of a
    process that has ended mean other messages to its successor.
    """
    _, (one, other) = sharded(stage)
    del other.actor.answers["consume"]
    channel = stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t"))
    stage.settle()
    deliver(stage, channel, one, range(3))
    stage.settle()
    crash(stage, one)
    again = shard(stage, "q_0")
    stage.tell(stage.metadata, other.address, "release", True)
    stage.settle()
    assert kinds(channel) == [BasicConsumeOk]
    assert not channel.actor.deliveries.unacked.count
    assert not again.actor.take("settle")


def test_a_message_that_was_got_belongs_to_the_process_that_gave_it(stage):
    """While a get waits for the counts of the other shards, the shard that answered may crash. The acknowledgement of
    its message must not reach the process that replaces it.
    """
    whole, (one, other) = sharded(stage)
    whole.actor.answers["counts"] = 0, 0
    one.actor.answers["get"] = FetchedMessages(ORIGIN, False, [0], [CONTENT]), 0
    channel = stage.channel()
    channel.send(BasicGet(queue="q"))
    stage.settle()
    crash(stage, one)
    stage.settle()
    again = shard(stage, "q_0")
    stage.tell(stage.metadata, other.address, "release", (0, 0))
    stage.settle()
    assert kinds(channel) == [BasicGetOk]
    channel.send(BasicGet(queue="q_0"))  # the channel watches the next process
    stage.settle()
    stage.tell(stage.metadata, again.address, "release", (None, 0))
    channel.ack(1)
    stage.settle()
    assert not again.actor.take("settle")


def test_a_message_that_was_got_reaches_the_client_although_another_shard_is_down(stage):
    """The broker has forgotten a message that was got without acknowledgement, so the client must receive it even if
    another shard cannot be asked for its messages then. It was lost once, and the channel closed.
    """
    whole, (one, other) = sharded(stage)
    whole.actor.answers["counts"] = 0, 0
    one.actor.answers["get"] = FetchedMessages(ORIGIN, False, [0], [CONTENT]), 7
    channel = stage.channel()
    channel.send(BasicGet(queue="q", no_ack=True))
    stage.settle()
    stage.base.end(stage.base.cells[other.address.actorAddressString], NOCONNECTION)
    stage.settle()
    found = [frame for frame in channel.frames() if not isinstance(frame, bytes)]
    assert [(type(frame), frame.message_count) for frame in found] == [(BasicGetOk, 7)]


def test_a_delivery_of_an_earlier_process_is_dropped(stage):
    """A channel may find by itself that a queue was restarted, before it has handled all that the earlier process has
    sent.
    """
    queue, channel = stage.queue("q", process=Answering), stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t"))
    stage.settle()
    again = stage.queue("q", process=Answering)  # the channel is not notified of the end of the first one yet
    channel.send(BasicConsume(queue="q", consumer_tag="other"))
    deliver(stage, channel, queue, range(2))
    stage.settle()
    assert kinds(channel) == [BasicConsumeOk, BasicConsumeOk]
    channel.ack(0, multiple=True)
    stage.settle()
    assert not again.actor.take("settle")


def test_a_consumer_that_loses_a_shard_while_it_is_registered_is_cancelled_at_all_shards(stage):
    """When a shard crashes while the next one is asked, the client gets consume-ok before basic.cancel, and no shard
    keeps the consumer. Shards that were asked later once kept it, and sent their messages in vain again and again.
    """
    whole, (one, two, three) = sharded(stage, 3)
    del two.actor.answers["consume"]
    channel = stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t", arguments=CANCELS))
    stage.settle()
    crash(stage, one)
    stage.settle()
    stage.tell(stage.metadata, two.address, "release", True)
    stage.settle()
    assert kinds(channel) == [BasicConsumeOk, BasicCancel]
    for queue in (whole, two, three):
        assert queue.actor.take("cancel") == [(channel.id, "t")]
    assert not channel.actor.consumers.queue_ids()


def test_a_consumer_is_registered_again_if_the_logical_queue_crashes_before_its_shards_have_answered(stage):
    """The logical queue counts the consumers, and ends with the last one if it is an auto-delete queue."""
    whole, (one, other) = sharded(stage)
    del other.actor.answers["consume"]
    channel = stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="t"))
    stage.settle()
    again = stage.queue("q", process=Registering)
    stage.routing.put_queue(replace(again.row, shards=2))
    stage.actor(stage.metadata).answers["await_restart"] = stage.routing.queue("/", "q")
    crash(stage, whole)
    stage.settle()
    stage.tell(stage.metadata, other.address, "release", True)
    stage.settle()
    assert again.actor.consumers == ["t"] and kinds(channel) == [BasicConsumeOk]
