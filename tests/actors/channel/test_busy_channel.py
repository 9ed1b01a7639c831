"""A channel that is busy with a method: what the client gets then, and what the connection is told."""

from __future__ import annotations

import pytest

from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    QueueDeclare,
    QueueDeclareOk,
)

from ..stage import Stage, Stub


class Slow(Stub):
    """Stands for a Metadata that answers a declare only at `answer`."""

    def on_declare_queue(self, sender, *fields):
        self.asked = sender

    def on_answer(self, sender, value):
        self.reply(self.asked, value)


@pytest.fixture
def stage():
    with Stage(consumer_timeout=1, channel_tick_interval=1) as stage:
        stage.metadata = stage.create(Slow)
        stage.context = stage.context.__class__(
            "warren@test", stage.settings, stage.routing, stage.metadata, stage.alarms, stage.alarms
        )
        yield stage


def test_the_answer_of_a_method_does_not_follow_channel_close(stage):
    """The broker closes a channel whose client does not acknowledge, although a method is under way. What that method
    would be answered does not reach the client, which has got channel.close (AB-54).
    """
    queue, channel = stage.queue(), stage.channel()
    channel.send(BasicConsume(queue="q", consumer_tag="c"), QueueDeclare(queue="slow"))
    queue.publish(stage.create(Stub), [b"x"])
    got = []

    def is_closed():
        got.extend(channel.frames())
        return any(isinstance(frame, ChannelClose) for frame in got)

    stage.until(is_closed)
    stage.tell(channel.address, stage.metadata, "answer", (queue.row, True))
    stage.settle()
    channel.send(ChannelCloseOk())
    stage.settle()
    assert [type(frame) for frame in got + channel.frames()] == [BasicConsumeOk, BasicDeliver, bytes, ChannelClose]
    assert not stage.is_alive(channel.address)


def test_a_close_of_the_client_is_answered_behind_channel_close(stage):
    """The closes of both sides may cross. The client's is answered all the same (AB-54)."""
    channel = stage.channel()
    channel.send(QueueDeclare(queue="not there", passive=True), ChannelClose(200, "", 0, 0))
    stage.settle()
    assert [type(frame) for frame in channel.frames()] == [ChannelClose, ChannelCloseOk]


def test_the_connection_learns_when_everything_before_is_handled(stage):
    """An idle channel answers `handled` at once; a busy one when it has done everything that came before (FC-34)."""
    queue, channel = stage.queue(), stage.channel()
    asker = stage.create(Asker)
    stage.tell(channel.address, asker, "have_answered", channel.address)
    stage.settle()
    assert stage.actor(asker).answers_got == 1
    channel.send(QueueDeclare(queue="slow"), QueueDeclare(queue="slow"))
    stage.tell(channel.address, asker, "have_answered", channel.address)
    stage.settle()
    for answered in (1, 2):
        assert stage.actor(asker).answers_got == 1
        stage.tell(channel.address, stage.metadata, "answer", (queue.row, True))
        stage.settle()
        assert [type(frame) for frame in channel.frames()] == [QueueDeclareOk], answered
    assert stage.actor(asker).answers_got == 2


def test_the_connection_learns_that_a_closing_channel_has_dropped_everything(stage):
    """A channel that waits for close-ok answers `handled` too: the connection would not read the close-ok else."""
    channel = stage.channel()
    channel.send(QueueDeclare(queue="slow"), QueueDeclare(queue="not there", passive=True))
    asker = stage.create(Asker)
    stage.tell(channel.address, asker, "have_answered", channel.address)
    stage.settle()
    assert stage.actor(asker).answers_got == 0
    stage.tell(channel.address, stage.metadata, "answer", (stage.queue().row, True))
    stage.settle()
    assert [type(frame) for frame in channel.frames()] == [QueueDeclareOk, ChannelClose]
    assert stage.actor(asker).answers_got == 1


class Asker(Stub):
    """Stands for a connection that waits until a channel has handled everything."""

    def __init__(self):
        super().__init__()
        self.answers_got = 0

    async def on_have_answered(self, sender, channel):
        assert await self.ask(channel, ("handled",))
        self.answers_got += 1
