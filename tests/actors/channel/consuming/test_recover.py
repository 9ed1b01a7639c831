"""basic.recover of more messages than one turn may return."""

from __future__ import annotations

from warren.amqp.methods import BasicConsume, BasicDeliver, BasicRecover, BasicRecoverOk

from ...stage import Stage, Stub

COUNT = 40


def names(frames):
    return [type(frame) for frame in frames if not isinstance(frame, bytes)]


def test_what_is_delivered_while_messages_are_returned_is_returned_too():
    """AB-137: a client throws away all that it received before recover-ok. An acknowledgement of later deliveries with
    `multiple` must not acknowledge any of that: such a message would be lost.
    """
    with Stage(turn_messages=2) as stage:
        queue, channel = stage.queue("q"), stage.channel()
        channel.send(BasicConsume(queue="q", consumer_tag="c"))
        for number in range(COUNT):  # one by one, so that each delivery is a run of its own
            channel.publish([b"%d" % number], "q")
            stage.settle()
        channel.frames()
        unacked = channel.actor.deliveries.unacked
        channel.send(BasicRecover(True))
        stage.until(lambda: unacked.count < COUNT)
        queue.publish(stage.create(Stub), [b"late"])
        stage.settle()
        seen = names(channel.frames())
        before = seen[: seen.index(BasicRecoverOk)]
        assert before == [BasicDeliver], "the message was delivered during the recovery"
        again = seen.count(BasicDeliver) - 1
        assert again == unacked.count == COUNT + 1
        channel.ack(COUNT + 2, True)
        stage.settle()
        assert unacked.count == COUNT
        assert queue.actor.backing.totals().pending == COUNT
