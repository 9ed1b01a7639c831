"""Block readers among stubs of channels: many messages in one delivery (SP-10 to SP-14, SP-23)."""

from __future__ import annotations

import pytest

from warren.amqp.frames import content_body, content_properties
from warren.amqp.properties import decode_properties
from warren.tests.store.block_twin import read_block

from ..stage import Stage, Stub
from .test_range_readers import Channel, counts, numbered, pairs, read

SIZE = 65_536


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class BlockChannel(Stub):
    """A stub channel that keeps blocks as (first, next, bodies), and how the range ended."""

    def __init__(self):
        super().__init__()
        self.got = []
        self.tags = []
        self.messages = []

    async def on_go(self, sender, target, message):
        self.received.append(("answer", await self.ask(target, message)))

    def on_deliver(self, sender, queue_id, tag, runs):
        for origins, redelivered, tags, contents in runs:
            self.tags += tags or []
            for content in contents:
                properties = decode_properties(content_properties(content))
                assert (properties.content_type, redelivered) == ("application/x-warren-block", False)
                assert origins.routing_keys == ("q",)
                block = read_block(content_body(content))
                headers = {name: value for name, _, value in properties.headers}
                assert headers == {"x-warren-seq": block.first, "x-warren-next": block.next}
                self.messages += block.messages
                self.got.append((block.first, block.next, [content_body(each.content) for each in block.messages]))

    def on_reading_ended(self, sender, queue_id, tag, error):
        self.got.append(error.reply_text if error else "end")

    def take_got(self):
        got, self.got = self.got, []
        return got


@pytest.fixture
def queue(stage):
    queue = stage.queue()
    queue.publish(stage.create(Stub), numbered(0, 10))
    stage.settle()
    return queue


@pytest.fixture
def channel(stage):
    return stage.create(BlockChannel)


def test_a_range_comes_as_one_block_and_ends(stage, queue, channel):
    assert read(stage, queue, channel, blocks=True, read_from=3, read_to=6) is True
    assert stage.actor(channel).take_got() == [(3, 7, numbered(3, 7)), "end"]
    assert counts(queue) == (10, 0) and queue.actor.role.range_readers.readers == {}


def test_blocks_have_ready_and_unacknowledged_messages(stage, queue, channel):
    """Blocks have ready and unacknowledged messages, each with the redelivered flag that the next consumer would see;
    an acknowledged message is a hole.
    """
    consumer = stage.create(Stub)
    queue.consume(consumer, prefetch=4)
    stage.settle()
    queue.tell(consumer, "settle", "ack", [[1, 2]])
    stage.settle()
    read(stage, queue, channel, blocks=True, read_from="first", read_to="last")
    bodies = [*numbered(0, 1), *numbered(3, 10)]
    assert stage.actor(channel).take_got() == [(0, 10, bodies), "end"]
    assert [message.number for message in stage.actor(channel).messages if message.redelivered] == [0, 3, 4, 5]


def test_the_last_block_covers_the_end_of_the_range_even_if_it_is_empty(stage, queue, channel):
    consumer = stage.create(Stub)
    queue.consume(consumer, prefetch=10)
    stage.settle()
    queue.tell(consumer, "settle", "ack", [range(4, 9)])
    stage.settle()
    read(stage, queue, channel, blocks=True, read_from=2, read_to=7)
    assert stage.actor(channel).take_got() == [(2, 8, numbered(2, 4)), "end"]
    read(stage, queue, channel, blocks=True, read_from=5, read_to=7)
    assert stage.actor(channel).take_got() == [(5, 8, []), "end"]


def test_a_block_never_waits_to_fill(stage, queue, channel):
    """A block does not wait until it is full: a reader of a range that goes beyond the highest number gets the messages
    that are there, and later ones as they come.
    """
    publisher = stage.create(Stub)
    read(stage, queue, channel, blocks=True, read_from=8, read_to=12)
    assert stage.actor(channel).take_got() == [(8, 10, numbered(8, 10))]
    queue.publish(publisher, numbered(10, 11))
    stage.settle()
    assert stage.actor(channel).take_got() == [(10, 11, numbered(10, 11))]
    queue.tell(channel, "sent", 2)
    queue.publish(publisher, numbered(11, 15))
    stage.settle()
    assert stage.actor(channel).take_got() == [(11, 13, numbered(11, 13)), "end"]


def test_two_blocks_are_in_flight(stage, channel):
    """Two blocks are in flight: the next is sent when the first is written, whatever other unwritten deliveries the
    channel has.
    """
    queue, consumer = stage.queue(), channel
    queue.publish(stage.create(Stub), [bytes([65 + number]) * 30_000 for number in range(10)])
    stage.settle()
    read(stage, queue, channel, blocks=SIZE, read_from=0)
    stub = stage.actor(consumer)
    assert [(first, stop) for first, stop, _ in stub.take_got()] == [(0, 3), (3, 6)]
    queue.tell(channel, "sent", 1)
    stage.settle()
    assert [(first, stop) for first, stop, _ in stub.take_got()] == [(6, 9)]
    queue.tell(channel, "sent", 2)
    stage.settle()
    assert [(first, stop) for first, stop, _ in stub.take_got()] == [(9, 10)]


def test_prefetch_counts_blocks(stage, channel):
    queue = stage.queue()
    queue.publish(stage.create(Stub), [bytes(70_000) for _ in range(3)])
    stage.settle()
    read(stage, queue, channel, no_ack=False, prefetch=1, blocks=SIZE, read_from=0, read_to=2)
    stub = stage.actor(channel)
    queue.tell(channel, "sent", 1)
    stage.settle()
    assert [(first, stop) for first, stop, _ in stub.take_got()] == [(0, 1)]
    queue.tell(channel, "settle", "ack", [[stub.tags[0]]])
    stage.settle()
    assert [(first, stop) for first, stop, _ in stub.take_got()] == [(1, 2)]


def test_headers_alone(stage, queue, channel):
    """A reader that wants only headers gets contents that end after the header frame, which has the size of
    the body.
    """
    read(stage, queue, channel, blocks=True, headers_only=True, read_from=0, read_to=9)
    messages = stage.actor(channel).messages
    assert [message.content[-1:] for message in messages] == [b"\xce"] * 10
    assert [len(message.content) for message in messages] == [22] * 10
    assert [int.from_bytes(message.content[11:19], "big") for message in messages] == [1] * 10


@pytest.mark.parametrize("blocks", [True, None])
def test_a_lenient_range_passes_over_what_is_gone_at_its_low_end(stage, queue, blocks):
    channel = stage.create(BlockChannel if blocks else Channel)
    read(stage, queue, channel, ack_to=4)
    stage.actor(channel).take_got()
    wanted = {"lenient": True, **({"blocks": True} if blocks else {})}
    read(stage, queue, channel, **wanted, read_from=2, read_to=6)
    assert stage.actor(channel).take_got() == ([(2, 7, numbered(5, 7)), "end"] if blocks else [*pairs(5, 7), "end"])
    read(stage, queue, channel, **wanted, read_from=1, read_to=3)
    assert stage.actor(channel).take_got() == ([(1, 4, []), "end"] if blocks else ["end"])


def test_a_strict_range_of_blocks_ends_with_an_error_if_messages_leave_before_they_are_read(stage, channel):
    queue, other = stage.queue(), stage.create(BlockChannel)
    queue.publish(other, [bytes(30_000) for _ in range(20)])
    stage.settle()
    read(stage, queue, channel, blocks=SIZE, read_from=0, read_to=19)
    assert [(first, stop) for first, stop, _ in stage.actor(channel).take_got()] == [(0, 3), (3, 6)]
    read(stage, queue, other, ack_to=9)
    queue.tell(channel, "sent", 2)
    stage.settle()
    reason = (
        "PRECONDITION_FAILED - numbers 6 to 19 of queue 'q' in vhost '/' cannot be read: "
        "the queue holds only numbers 10 to 19"
    )
    assert stage.actor(channel).take_got() == [reason]


def test_another_queue_id_is_refused(stage, queue):
    """A reader that names another queue id is refused, so that a reader of a queue that was deleted and declared again
    does not acknowledge in the new one.
    """
    channel = stage.create(Channel)
    assert read(stage, queue, channel, queue_id=queue.id, ack_to=1) is True
    other = "9f" * 16
    for arguments in ({"ack_to": 5}, {"read_from": 3}, {"bounds": True}):
        assert read(stage, queue, channel, queue_id=other, **arguments) == (
            f"PRECONDITION_FAILED - queue 'q' in vhost '/' has id '{queue.id}', not '{other}': "
            "it was deleted and declared again"
        )
    assert counts(queue) == (8, 0), "nothing was acknowledged"
