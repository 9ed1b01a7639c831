"""Range readers of a queue in memory, among stubs of channels (design section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.amqp.frames import content_body, content_properties
from warren.amqp.properties import decode_properties

from ..stage import CRASHED, Stage, Stub


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


class Channel(Stub):
    """A stub of a channel that keeps its deliveries as (number, body), in order, and how ranges ended."""

    reply_errors = (AmqpError,)

    def __init__(self):
        super().__init__()
        self.got = []
        self.tags = []
        self.flags = []

    async def on_go(self, sender, target, message):
        try:
            self.received.append(("answer", await self.ask(target, message)))
        except AmqpError as error:
            self.received.append(("answer", error.reply_text))

    def on_deliver(self, sender, queue_id, tag, runs):
        for _, redelivered, tags, contents in runs:
            self.tags += tags or []
            for content in contents:
                headers = decode_properties(content_properties(content)).headers
                self.got.append(
                    tuple(value for _, _, value in headers) + (content_body(content),)
                    if headers
                    else content_body(content)
                )
                self.flags.append(redelivered)

    def on_reading_ended(self, sender, queue_id, tag, error):
        self.got.append(error.reply_text if error else "end")

    def take_got(self):
        got, self.got = self.got, []
        return got


def read(stage, queue, channel, tag="r", no_ack=True, prefetch=0, is_limited=False, exclusive=False, **arguments):
    """Consume with these `x-warren` arguments, and return the answer."""
    table = table_from({"x-warren-" + key.replace("_", "-"): value for key, value in arguments.items()})
    fields = channel.actorAddressString, channel, tag, no_ack, exclusive, prefetch, is_limited, 0, table, "guest"
    stage.tell(channel, channel, "go", queue.address, ("consume", *fields))
    stage.settle()
    answers = stage.actor(channel).take("answer")
    return answers[0][0] if answers else None


def numbered(first, stop):
    return [b"%d" % number for number in range(first, stop)]


def pairs(first, stop):
    return [(number, b"%d" % number) for number in range(first, stop)]


def counts(queue):
    info = queue.actor.on_info(None)
    return info["messages_ready"], info["messages_unacknowledged"]


@pytest.fixture
def queue(stage):
    queue = stage.queue()
    queue.publish(stage.create(Stub), numbered(0, 10))
    stage.settle()
    return queue


@pytest.fixture
def channel(stage):
    return stage.create(Channel)


def test_a_closed_range_is_delivered_and_ends(stage, queue, channel):
    """A closed range is delivered and ends: its messages stay in the queue, and the reader is removed."""
    assert read(stage, queue, channel, read_from=3, read_to=6) is True
    assert stage.actor(channel).take_got() == [*pairs(3, 7), "end"]
    assert counts(queue) == (10, 0)
    assert queue.actor.role.range_readers.readers == {}


def test_a_reader_gets_ready_and_unacknowledged_messages(stage, queue, channel):
    """A reader gets ready and unacknowledged messages, and the consumers that have the latter notice nothing."""
    consumer = stage.create(Stub)
    queue.consume(consumer, prefetch=4)
    stage.settle()
    read(stage, queue, channel, read_from="first", read_to="last")
    reader = stage.actor(channel)
    assert reader.take_got() == [*pairs(0, 10), "end"]
    assert reader.flags == [True] * 4 + [False] * 6, "unacknowledged messages were delivered before"
    assert counts(queue) == (6, 4)
    queue.tell(consumer, "settle", "requeue", [[1]])
    queue.tell(consumer, "settle", "ack", [[0, 2, 3]])
    stage.settle()
    taken = [
        (redelivered, list(tags))
        for _, _, runs in stage.actor(consumer).take("deliver")
        for _, redelivered, tags, _ in runs
    ]
    assert taken == [(False, [0, 1, 2, 3]), (True, [1]), (False, [4, 5, 6])]


def test_a_range_may_have_holes_but_may_not_begin_below_the_lowest_number(stage, queue, channel):
    """Numbers that have left the queue are skipped inside a range, but a range that begins below the lowest number is
    refused.
    """
    consumer = stage.create(Stub)
    queue.consume(consumer)
    stage.settle()
    queue.tell(consumer, "settle", "ack", [[0, 1, 5, 6, 9]])
    stage.settle()
    read(stage, queue, channel, read_from=2, read_to=9)
    assert [number for number, _ in stage.actor(channel).take_got()[:-1]] == [2, 3, 4, 7, 8]
    answer = read(stage, queue, channel, read_from=1, read_to=9)
    assert answer == (
        "PRECONDITION_FAILED - numbers 1 to 9 of queue 'q' in vhost '/' cannot be read: "
        "the queue holds only numbers 2 to 9"
    )
    assert queue.actor.role.range_readers.readers == {}


def test_a_range_beyond_the_highest_number_waits_for_publishes(stage, queue, channel):
    """A range that goes beyond the highest number waits for publishes, and ends when its last number is delivered."""
    publisher = stage.create(Stub)
    read(stage, queue, channel, read_from=8, read_to=12)
    assert stage.actor(channel).take_got() == pairs(8, 10)
    queue.publish(publisher, numbered(10, 12))
    stage.settle()
    assert stage.actor(channel).take_got() == pairs(10, 12)
    queue.publish(publisher, numbered(12, 15))
    stage.settle()
    assert stage.actor(channel).take_got() == [(12, b"12"), "end"]


@pytest.mark.parametrize("start, before", [("next", []), (-2, pairs(8, 10)), (9, pairs(9, 10))])
def test_a_range_without_end_goes_on_until_it_is_cancelled(stage, queue, channel, start, before):
    """A range without an end delivers every later publish until it is cancelled."""
    publisher = stage.create(Stub)
    read(stage, queue, channel, read_from=start)
    assert stage.actor(channel).take_got() == before
    queue.publish(publisher, numbered(10, 12))
    stage.settle()
    assert stage.actor(channel).take_got() == pairs(10, 12)
    queue.tell(channel, "cancel", "r")
    queue.publish(publisher, numbered(12, 13))
    stage.settle()
    assert stage.actor(channel).take_got() == [] and queue.actor.role.range_readers.readers == {}


def test_a_reader_gets_messages_that_go_straight_to_a_consumer(stage, channel):
    """A reader gets also a message that goes directly to a consumer, because at the end of the turn the message is
    pending in the queue.
    """
    queue, consumer = stage.queue(), stage.create(Stub)
    queue.consume(consumer)
    read(stage, queue, channel, read_from="next")
    queue.publish(consumer, numbered(0, 3))
    stage.settle()
    assert stage.actor(channel).take_got() == pairs(0, 3) and counts(queue) == (0, 3)


def test_four_hundred_unsent_deliveries_stop_a_reader(stage, channel):
    """400 unsent deliveries stop a reader, as they do a consumer; it then holds at most one batch (FC-32)."""
    queue = stage.queue()
    queue.publish(stage.create(Stub), numbered(0, 1000))
    stage.settle()
    read(stage, queue, channel, read_from=0)
    assert stage.actor(channel).take_got() == pairs(0, 400)
    (reader,) = queue.actor.role.range_readers.readers.values()
    assert len(reader.buffer) == 112
    queue.tell(channel, "sent", 150)
    stage.settle()
    assert stage.actor(channel).take_got() == pairs(400, 550)
    assert len(reader.buffer) <= 256


def test_prefetch_bounds_what_a_reader_has_not_acknowledged(stage, queue, channel):
    """A reader has no more unacknowledged messages than its prefetch. Any settlement makes room for one more, and
    changes nothing in the queue.
    """
    read(stage, queue, channel, no_ack=False, prefetch=3, read_from=0, read_to=7)
    stub = stage.actor(channel)
    assert stub.take_got() == pairs(0, 3)
    for outcome, expected in (("ack", pairs(3, 4)), ("requeue", pairs(4, 5)), ("reject", pairs(5, 6))):
        queue.tell(channel, "settle", outcome, [[stub.tags.pop(0)]])
        stage.settle()
        assert stub.take_got() == expected, outcome
    assert counts(queue) == (10, 0) and queue.actor.role.dead_letterer.counts.dead["rejected"] == 0
    queue.tell(channel, "settle", "ack", [stub.tags[:3]])
    stage.settle()
    assert stub.take_got() == [*pairs(6, 8), "end"]
    queue.tell(channel, "settle", "ack", [stub.tags[3:]])
    stage.settle()
    assert counts(queue) == (10, 0)


def test_a_reader_keeps_to_a_channel_wide_prefetch(stage, queue, channel):
    """A reader asks the channel's limiter for deliveries, uses the grant, and returns what it cannot use (AB-127)."""
    read(stage, queue, channel, no_ack=False, is_limited=True, read_from=0, read_to=4)
    stub = stage.actor(channel)
    assert len(stub.take("limiter_request")) == 1 and stub.take_got() == []
    queue.tell(channel, "limiter_grant", 2)
    stage.settle()
    assert stub.take_got() == pairs(0, 2) and len(stub.take("limiter_request")) == 1
    queue.tell(channel, "limiter_grant", 50)
    stage.settle()
    assert stub.take_got() == [*pairs(2, 5), "end"]
    assert stub.take("limiter_return") == [(queue.id, 47)]


def test_a_grant_serves_a_reader_and_a_consumer_of_the_same_channel(stage, queue, channel):
    """A grant serves the reader of a channel first, and a consumer of the same channel gets the rest."""
    queue.consume(channel, "c", is_limited=True)
    read(stage, queue, channel, no_ack=False, is_limited=True, read_from=0, read_to=4)
    stub = stage.actor(channel)
    for _ in range(6):
        if stub.take("limiter_request"):
            queue.tell(channel, "limiter_grant", 10)
        stage.settle()
    got = stub.take_got()
    assert [item for item in got if isinstance(item, tuple)] == pairs(0, 5)
    assert [item for item in got if isinstance(item, bytes)] == numbered(0, 10)


def test_a_closed_range_ends_with_an_error_if_messages_leave_before_they_are_read(stage, channel):
    """If messages of a closed range leave the queue before they are read, the range ends with an error, after the
    messages that the reader had in its buffer.
    """
    queue, other = stage.queue(), stage.create(Channel)
    queue.publish(other, numbered(0, 1000))
    stage.settle()
    read(stage, queue, channel, read_from=0, read_to=999)
    assert stage.actor(channel).take_got() == pairs(0, 400)
    read(stage, queue, other, ack_to=699)
    queue.tell(channel, "sent", 400)
    stage.settle()
    got = stage.actor(channel).take_got()
    assert got[:112] == pairs(400, 512), "messages in the buffer are still delivered"
    assert got[112:] == [
        (
            "PRECONDITION_FAILED - numbers 512 to 999 of queue 'q' in vhost '/' cannot be read: "
            "the queue holds only numbers 700 to 999"
        )
    ]


def test_a_reader_without_end_skips_messages_that_leave_before_they_are_read(stage, channel):
    """A reader without an end skips messages that leave before they are read, and goes on at the lowest number that is
    left.
    """
    queue, other = stage.queue(), stage.create(Channel)
    queue.publish(other, numbered(0, 1000))
    stage.settle()
    read(stage, queue, channel, read_from=0)
    read(stage, queue, other, ack_to=699)
    queue.tell(channel, "sent", 200)
    stage.settle()
    assert stage.actor(channel).take_got()[400:] == [*pairs(400, 512), *pairs(700, 788)]


def test_acknowledging_up_to_a_number(stage, queue, channel):
    """`ack_to` removes ready and unacknowledged messages up to a number. A consumer's later settlement of them, or a
    second `ack_to`, has no effect.
    """
    consumer, stub = stage.create(Stub), stage.actor(channel)
    queue.consume(consumer, prefetch=4)
    stage.settle()
    assert read(stage, queue, channel, ack_to=6) is True
    assert stub.take_got() == ["end"]
    assert (len(queue.actor.backing), queue.actor.backing.totals().depth) == (3, 3)
    assert read(stage, queue, channel, ack_to=6) is True
    assert read(stage, queue, channel, ack_to=2) is True
    queue.tell(consumer, "settle", "ack", [[0, 1]])
    queue.tell(consumer, "settle", "requeue", [[2]])
    stage.settle()
    assert [list(tags) for _, _, runs in stage.actor(consumer).take("deliver") for _, _, tags, _ in runs] == [
        [0, 1, 2, 3],
        [7, 8, 9],
    ]
    assert stub.take_got() == ["end", "end"]
    assert read(stage, queue, channel, ack_to=10).startswith(
        "PRECONDITION_FAILED - cannot acknowledge up to 10 of queue 'q' in vhost '/': no message has that number yet"
    )


def test_the_first_delivery_gives_the_bounds_if_wanted(stage, queue, channel):
    """The first delivery has the first and the next number of the queue if the reader asks for them, as they are after
    `ack_to`.
    """
    read(stage, queue, channel, bounds=True)
    assert stage.actor(channel).take_got() == [(0, 10, b""), "end"]
    read(stage, queue, channel, ack_to=3, bounds=True, read_from="first", read_to=5)
    assert stage.actor(channel).take_got() == [(4, 10, b""), *pairs(4, 6), "end"]
    read(stage, queue, channel, ack_to=9, bounds=True)
    assert stage.actor(channel).take_got() == [(10, 10, b""), "end"]


def test_the_number_is_added_to_the_headers(stage, channel):
    """The number is added to the headers. Properties that cannot be decoded are replaced by it."""
    queue = stage.queue(durable=True)
    queue.publish(channel, [b"0"], persistent=True)
    stage.settle()
    origin = queue.actor.backing.head().origin
    unreadable = b"\x80\x00\x09cut"
    content = (
        b"\x02\x00\x01\x00\x00\x00\x12\x00\x3c\x00\x00"
        + (1).to_bytes(8, "big")
        + unreadable
        + b"\xce"
        + b"\x03\x00\x01\x00\x00\x00\x011\xce"
    )
    queue.actor.backing.publish(origin, [content], 1, None, False)
    read(stage, queue, channel, read_from=0, read_to="last")
    assert stage.actor(channel).take_got() == [*pairs(0, 2), "end"]


def test_unsupported_reads_are_refused(stage, channel):
    """A reader of a queue with priorities is refused, because it has no single sequence of numbers, and so is an
    exclusive reader.
    """
    priorities, plain = stage.queue("p", x_max_priority=3), stage.queue()
    for arguments in ({"read_from": 0}, {"ack_to": 0}, {"bounds": True}):
        answer = read(stage, priorities, channel, **arguments)
        assert answer == (
            "PRECONDITION_FAILED - queue 'p' in vhost '/' cannot be read or acknowledged by number: "
            "it has priorities or fair lanes, which deliver out of the order of numbers"
        )
    answer = read(stage, plain, channel, exclusive=True, read_from=0)
    assert answer == (
        "PRECONDITION_FAILED - a consumer of queue 'q' in vhost '/' that reads by number cannot be exclusive: "
        "it takes nothing that others could get"
    )
    assert priorities.actor.on_info(None)["next_number"] is None


def test_beside_an_exclusive_consumer_reading_is_allowed_and_acknowledging_is_not(stage, queue, channel):
    """Beside an exclusive consumer a reader may read, which takes nothing from that consumer, but may not
    acknowledge.
    """
    consumer = stage.create(Stub)
    fields = consumer.actorAddressString, consumer, "c", False, True, 0, False, 0, (), "guest"
    stage.tell(consumer, queue.address, "consume", *fields)
    assert read(stage, queue, channel, read_from=0, read_to=1) is True
    assert read(stage, queue, channel, ack_to=1) == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_readers_stand_beside_a_single_active_consumer(stage, channel):
    """A reader is never the active consumer."""
    queue, consumer = stage.queue(x_single_active_consumer=True), stage.create(Stub)
    queue.publish(consumer, numbered(0, 3))
    read(stage, queue, channel, read_from=0)
    queue.consume(consumer)
    stage.settle()
    assert stage.actor(channel).take_got() == pairs(0, 3)
    assert queue.actor.role.consumers.active.tag == "c"


def test_a_reader_is_no_consumer_in_any_count(stage, queue, channel):
    """A reader is counted as no consumer, and listings show it in a row of its own."""
    read(stage, queue, channel, read_from="next")
    assert queue.actor.on_counts(None) == (10, 0)
    info = queue.actor.on_info(None)
    assert (info["consumers"], info["readers"], info["first_number"], info["next_number"]) == (0, 1, 0, 10)
    (row,) = queue.actor.role.consumers_info()
    assert (row["consumer_tag"], row["activity_status"], row["active"]) == ("r", "reading", True)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_reader_keeps_a_queue_from_expiring(stage, channel, is_cancelled):
    """A queue does not expire while it has a reader, until the reader is cancelled or its channel ends (AB-93)."""
    queue = stage.queue(x_expires=50)
    read(stage, queue, channel, read_from="next")
    stage.base.run_until(lambda: False, 0.15)
    assert stage.is_alive(queue.address)
    if is_cancelled:
        queue.tell(channel, "cancel", "r")
    else:
        stage.base.end(stage.base.cells[channel.actorAddressString], CRASHED)
    stage.until(lambda: not stage.is_alive(queue.address))


def test_the_readers_of_a_channel_end_with_it(stage, queue, channel):
    """The readers of a channel end with it, and those of other channels stay."""
    other = stage.create(Channel)
    read(stage, queue, channel, no_ack=False, prefetch=2, read_from=0)
    read(stage, queue, other, read_from="next")
    queue.tell(channel, "channel_closing")
    stage.settle()
    (left,) = queue.actor.role.range_readers.readers.values()
    assert left.consumer.channel.address == other
    assert counts(queue) == (10, 0)


def test_a_reader_whose_deliveries_are_written_late_misses_nothing(stage, channel):
    """A reader stops at 400 unsent deliveries, and goes on with the next number when they are written (FC-32)."""
    queue, consumer = stage.queue(), stage.create(Stub)
    queue.consume(consumer, prefetch=30)
    read(stage, queue, channel, no_ack=False, prefetch=20, read_from="first")
    stub, published = stage.actor(channel), 0
    for count in [1] * 15 + [27] + [40] * 9:
        queue.publish(consumer, numbered(published, published + count))
        published += count
        stage.settle()
    while stub.tags:
        queue.tell(channel, "settle", "ack", [stub.tags[:]])
        stub.tags.clear()
        stage.settle()
    assert stub.take_got() == pairs(0, 400)
    queue.tell(channel, "sent", 400)
    stage.settle()
    assert stub.take_got() == pairs(400, 402) and published == 402


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_others_do_a_reader_gets_each_number_once_and_in_order(data):
    """Whatever order publishes, acknowledgements and requeues come in, a reader gets each number once and in order,
    except numbers that left before it reached them.
    """
    with Stage() as stage:
        queue, consumer, channel = stage.queue(), stage.create(Stub), stage.create(Channel)
        queue.consume(consumer, prefetch=30)
        read(stage, queue, channel, no_ack=False, prefetch=20, read_from="first")
        stub, mine, published, acked = stage.actor(channel), [], 0, set()
        got = []

        def take():
            new = stub.take_got()
            got.extend(new)
            # Otherwise the reader would stop at 200 unsent deliveries (FC-32).
            queue.tell(channel, "sent", len(new))
            stage.settle()

        for step in data.draw(st.lists(st.sampled_from(["publish", "ack", "requeue", "read"]), max_size=25)):
            if step == "publish":
                count = data.draw(st.integers(1, 40))
                queue.publish(consumer, numbered(published, published + count))
                published += count
            elif step == "read" and stub.tags:
                count = data.draw(st.integers(1, len(stub.tags)))
                queue.tell(channel, "settle", "ack", [stub.tags[:count]])
                del stub.tags[:count]
            elif mine:
                tags = sorted(data.draw(st.lists(st.sampled_from(mine), unique=True, min_size=1)))
                queue.tell(consumer, "settle", step if step == "requeue" else "ack", [tags])
                mine = [tag for tag in mine if tag not in tags]
                acked |= set(tags) if step != "requeue" else set()
            stage.settle()
            mine += [
                tag for _, _, runs in stage.actor(consumer).take("deliver") for _, _, tags, _ in runs for tag in tags
            ]
            take()
            # A number that the reader has passed is never reported as missing, not even for a moment.
            numbers = [number for number, _ in got]
            assert set(range(max(numbers, default=-1) + 1)) - set(numbers) <= acked
        while stub.tags:
            queue.tell(channel, "settle", "ack", [stub.tags[:]])
            stub.tags.clear()
            stage.settle()
            take()
        numbers = [number for number, _ in got]
        assert numbers == sorted(set(numbers)) and all(body == b"%d" % number for number, body in got)
        assert set(range(published)) - set(numbers) <= acked
