"""basic.get in a channel: gets that wait behind another are sent to the queue together."""

from __future__ import annotations

import pytest

from warren.amqp.frames import build_content
from warren.amqp.methods import BasicGet, BasicGetEmpty, BasicGetOk, BasicQos, BasicQosOk, ChannelClose, QueueDelete
from warren.store.messages.message import FetchedMessages, Origin

from ..stage import PROPS, Stage, Stub

ORIGIN = Origin("", ("q",), False, 0, 1)
CONTENT = build_content(1, PROPS, b"body", 4096)


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Holding(Stub):
    """Stands for a queue that has messages with these tags, and answers at most `most` gets at a time."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.most = 100
        #: How many messages each request has asked for.
        self.asked = []

    def on_get(self, sender, channel_id, address, no_ack):
        self.asked.append(1)
        self.reply(sender, self._take())

    def on_get_several(self, sender, channel_id, address, no_ack, count):
        self.asked.append(count)
        answers = [self._take()]
        while len(answers) < min(count, self.most) and answers[-1][0] is not None:
            answers.append(self._take())
        self.reply(sender, answers)

    def _take(self):
        if not self.tags:
            return None, 0
        tag = self.tags.pop(0)
        return FetchedMessages(ORIGIN, False, [tag], [CONTENT]), len(self.tags)


def answers(channel):
    """For each answer, the number of messages left, or None for get-empty. Other methods are returned as they are."""
    found = []
    for method in channel.frames():
        if isinstance(method, bytes):
            continue  # the body of a message
        if isinstance(method, BasicGetOk):
            found.append((method.delivery_tag, method.message_count))
        else:
            found.append(None if isinstance(method, BasicGetEmpty) else method)
    return found


def holding(stage, count, most=100):
    queue = stage.queue("q", process=Holding)
    queue.actor.tags, queue.actor.most = list(range(count)), most
    return queue


def test_gets_that_wait_behind_another_are_asked_together(stage):
    """Gets that wait are sent to the queue in one request, and answered in order. A method of another kind, and a get
    from another queue or with another acknowledgement, ends such a run.
    """
    queue, channel = holding(stage, 20), stage.channel()
    get, no_ack = BasicGet(queue="q"), BasicGet(queue="q", no_ack=True)
    channel.send(get, get, get, get, BasicQos(prefetch_count=1), get, get, no_ack, no_ack)
    stage.settle()
    assert queue.actor.asked == [1, 3, 2, 2]
    left = list(enumerate(range(19, 11, -1), 1))
    assert answers(channel) == [*left[:4], BasicQosOk(), *left[4:]]


def test_gets_behind_the_last_message_are_answered_empty(stage):
    queue, channel = holding(stage, 3), stage.channel()
    channel.send(*[BasicGet(queue="q")] * 6)
    stage.settle()
    assert queue.actor.asked == [1, 5] and answers(channel) == [(1, 2), (2, 1), (3, 0), None, None, None]


def test_gets_for_which_the_queue_would_wait_are_asked_again(stage):
    queue, channel = holding(stage, 9, most=2), stage.channel()
    channel.send(*[BasicGet(queue="q")] * 8)
    stage.settle()
    assert queue.actor.asked == [1, 7, 5, 3, 1]
    assert answers(channel) == list(enumerate(range(8, 0, -1), 1))


def test_one_question_asks_for_a_bounded_number(stage):
    queue, channel = holding(stage, 200), stage.channel()
    channel.send(*[BasicGet(queue="q")] * 150)
    stage.settle()
    assert queue.actor.asked == [1, 64, 64, 21] and len(answers(channel)) == 150


def test_gets_in_a_row_from_a_queue(stage):
    """Gets in a row return a queue's messages in order, and unacknowledged ones are requeued when the channel ends."""
    queue, publisher = stage.queue("q"), stage.create(Stub)
    queue.publish(publisher, [b"%d" % number for number in range(5)])
    channel = stage.channel()
    channel.send(*[BasicGet(queue="q")] * 4)
    stage.settle()
    assert answers(channel) == [(1, 4), (2, 3), (3, 2), (4, 1)] and len(queue.actor.backing) == 1
    channel.send(*[BasicGet(queue="q", no_ack=True)] * 3)
    stage.settle()
    assert answers(channel) == [(5, 0), None, None]


def test_gets_from_a_queue_that_is_gone_close_the_channel_once(stage):
    stage.queue("q")
    channel = stage.channel()
    channel.send(*[BasicGet(queue="none")] * 3, QueueDelete(queue="q"))
    stage.settle()
    (close,) = channel.frames()
    assert type(close) is ChannelClose and close.reply_code == 404
