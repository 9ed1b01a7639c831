"""`MessageMoving` acknowledges a message in its queue only when the other queue has confirmed it."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.channel.moving import WINDOW, WINDOW_BYTES, MessageMoving
from warren.amqp import methods
from warren.amqp.parser.events import ACKS, METHOD, RUN


class Channel:
    """A queue with messages, and a queue that confirms, refuses or returns what is published to it."""

    def __init__(self, bodies, wanted, published, first_tag):
        self.ready = deque(enumerate(bodies))
        self.moving = MessageMoving("from", "to", wanted, 1, 131_072, published, self.send, lambda: self.has_credit)
        self.has_credit = True
        self.gets = deque()
        self.unacked = {}
        self.unconfirmed = deque()
        self.there, self.requeued = [], []
        self.tag, self.published = first_tag, published
        self.is_over = self.moving.go_on()

    def send(self, event):
        if event[0] == METHOD and isinstance(event[2], methods.BasicGet):
            self.gets.append(event)
        elif event[0] == METHOD:
            assert isinstance(event[2], methods.BasicNack) and event[2].requeue and not event[2].multiple
            self.requeued.append(self.unacked.pop(event[2].delivery_tag))
        elif event[0] == RUN:
            self.published += 1
            self.unconfirmed.append((self.published, max(self.unacked.values())))
        else:
            assert event[0] == ACKS
            for tag, is_multiple in event[2]:
                assert not is_multiple
                number = self.unacked.pop(tag)
                assert number in self.there, "the message was not in the other queue yet"

    def get(self):
        """Answer a basic.get."""
        if not self.gets:
            return
        self.gets.popleft()
        if not self.ready:
            self.moving.replied(methods.BasicGetEmpty(""))
        else:
            number, body = self.ready.popleft()
            self.tag += 1
            self.unacked[self.tag] = number
            self.moving.fetched(methods.BasicGetOk(self.tag, False, "", "from", len(self.ready)), b"\x00\x00", body)
        self.is_over = self.moving.go_on()

    def confirm(self, count, outcome):
        """The other queue takes, refuses or returns the next `count` publishes."""
        last = 0
        for _ in range(min(count, len(self.unconfirmed))):
            last, number = self.unconfirmed.popleft()
            if outcome == "return":
                self.moving.replied(methods.BasicReturn(312, "NO_ROUTE", "", "to"))
            elif outcome == "ack":
                self.there.append(number)
        if last:
            kind = methods.BasicNack(last, True, False) if outcome == "nack" else methods.BasicAck(last, True)
            self.moving.replied(kind)
            self.is_over = self.moving.go_on()

    def credit(self, has_credit):
        self.has_credit = has_credit
        self.is_over = self.moving.go_on()


steps = st.lists(
    st.one_of(
        st.just(("get",)),
        st.tuples(st.just("confirm"), st.integers(1, 5), st.sampled_from(["ack", "ack", "ack", "nack", "return"])),
        st.tuples(st.just("credit"), st.booleans()),
    ),
    max_size=60,
)


@given(st.integers(0, 30), st.integers(1, 40), st.integers(0, 9), st.integers(0, 9), steps)
@settings(max_examples=300, deadline=None)
def test_every_message_is_in_one_of_the_queues(messages, wanted, published, first_tag, steps):
    """In whatever order the channel answers, and whether the other queue takes, refuses or returns a message, each one
    is ready, unacknowledged or requeued in its queue unless the other queue has it.
    """
    channel = Channel([b"x"] * messages, wanted, published, first_tag)
    for name, *arguments in steps:
        getattr(channel, name)(*arguments)
        held = set(channel.unacked.values())
        assert held.isdisjoint(channel.requeued)
        waiting = [number for number, _ in channel.ready]
        assert {*channel.there, *held, *channel.requeued, *waiting} == set(range(messages))
    channel.credit(True)
    while not channel.is_over:
        channel.get()
        channel.confirm(1, "ack")
    result = channel.moving.result()
    assert not channel.unacked and not channel.gets, "everything is settled"
    assert result.left == len(channel.ready) + len(channel.requeued)
    assert result.moved <= len(channel.there) and result.moved <= wanted
    if not result.failure:
        assert not channel.requeued
        assert channel.there == list(range(min(messages, wanted))) and result.moved == len(channel.there)


def test_few_messages_are_on_their_way():
    """Until something is confirmed, at most `WINDOW` messages are fetched, and one body of `WINDOW_BYTES`."""
    for bodies, most in (([b"x"] * (2 * WINDOW), WINDOW), ([bytes(WINDOW_BYTES)] * 3, 1)):
        channel = Channel(bodies, 1_000, 0, 0)
        while channel.gets:
            channel.get()
        assert len(channel.unconfirmed) == most
