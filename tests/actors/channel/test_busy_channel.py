"""A channel that is busy with a method: what the client gets then."""

from __future__ import annotations

import pytest

from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    QueueDeclare,
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
