"""Every message that crosses between nodes arrives as it was sent, and no other bytes arrive as a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.contracts.node import ClientAddress
from warren.amqp.errors import AmqpError
from warren.amqp.fields import Table, table_from
from warren.cluster.links.encoding.codecs import CodecError, NotCarried
from warren.cluster.links.encoding.envelopes import Envelopes, Unknown, body
from warren.cluster.links.encoding.messages import MESSAGES
from warren.runtime.system.address import LoopAddress
from warren.store.messages.message import FetchedMessages, Origin

A, B = "warren@a-1f", "warren@b-2e"
CHANNEL, QUEUE = LoopAddress(f"{A}/Channel-7"), LoopAddress(f"{B}/q/ab12/0")

#: Names on the wire are any bytes; those that are not UTF-8 are surrogates in a text.
TEXT = st.text(st.characters(exclude_categories=())).filter(lambda text: not _has_pairs(text)) | st.just("\udcff\udc80")
NUMBER = st.integers(0, 2**63 - 1)
ORIGIN = st.builds(
    Origin,
    TEXT,
    st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.integers(0, 255),
    st.none() | NUMBER,
)
CONTENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6) | st.lists(
    st.binary(min_size=9, max_size=9), min_size=3, max_size=6
)
TABLE = st.just(Table()) | st.builds(
    lambda name, value: table_from({name: value}), st.sampled_from("ab"), st.booleans()
)
INFO = st.dictionaries(st.sampled_from(("name", "x")), st.none() | NUMBER | TEXT | TABLE | st.lists(NUMBER), max_size=2)
RANGES = st.lists(st.tuples(NUMBER, NUMBER), max_size=3)
ID = st.just(0) | st.integers(1, 2**128 - 1)
ADDRESS = st.sampled_from((CHANNEL, QUEUE, LoopAddress("warren@c-3/Channel-1")))


def _has_pairs(text):
    """Whether the text has surrogates that do not stand for a byte."""
    return any("\ud800" <= character <= "\udfff" and not "\udc80" <= character <= "\udcff" for character in text)


def numbers(count):
    """Numbers of `count` messages: a range, which is the usual case, or a list."""
    return st.integers(0, 2**60).map(lambda first: range(first, first + count)) | st.lists(
        NUMBER, min_size=count, max_size=count
    )


@st.composite
def runs(draw, make):
    contents = draw(CONTENTS)
    one = draw(ORIGIN)
    others = st.lists(st.sampled_from((one, draw(ORIGIN))), min_size=len(contents), max_size=len(contents))
    return make(draw, draw(st.just(one) | others), contents)


PUBLISH = runs(
    lambda draw, origins, contents: (origins, contents, draw(NUMBER), draw(NUMBER), draw(st.booleans()), draw(ID))
)
AT_MOST_ONCE = st.tuples(ORIGIN, CONTENTS, NUMBER, ID)
RUN = runs(
    lambda draw, origins, contents: (origins, draw(st.booleans()), draw(st.none() | numbers(len(contents))), contents)
)
DELIVERY = runs(
    lambda draw, origins, contents: FetchedMessages(
        origins, draw(st.booleans()), draw(numbers(len(contents))), contents
    )
)
FLAG = st.booleans()
MOMENT = st.floats(allow_nan=False)
PIECE = st.tuples(FLAG, st.binary(max_size=9))
REPORT = st.tuples(TEXT, TEXT, TEXT, TEXT, TEXT)

#: For each message that crosses: strategies for its fields and for its answer.
MESSAGE = {
    "publish": ((TEXT, st.lists(PUBLISH, max_size=3), TEXT, NUMBER, NUMBER), None),
    "publish_at_most_once": ((st.lists(AT_MOST_ONCE, max_size=3),), None),
    "take_dead_letters": ((st.lists(AT_MOST_ONCE, max_size=3), st.booleans()), st.booleans()),
    "consume": ((TEXT, ADDRESS, TEXT, FLAG, FLAG, NUMBER, FLAG, NUMBER, TABLE, TEXT), FLAG),
    "cancel": ((TEXT, TEXT), FLAG),
    "get": ((TEXT, ADDRESS, FLAG), st.tuples(st.none() | DELIVERY, NUMBER)),
    "ring": ((NUMBER, st.lists(NUMBER, max_size=5), st.binary(max_size=3), st.lists(st.binary(), max_size=3)), None),
    "reclaim": ((TEXT, RANGES), RANGES),
    "settle": ((TEXT, st.sampled_from(("ack", "requeue", "reject")), st.lists(numbers(3), max_size=3)), None),
    "limiter_changed": ((TEXT, FLAG), None),
    "limiter_grant": ((TEXT, NUMBER), None),
    "sent": ((TEXT, NUMBER), None),
    "channel_closing": ((TEXT,), FLAG),
    "counts": ((), st.tuples(NUMBER, NUMBER)),
    "check_reader": ((TEXT,), FLAG),
    "purge": ((), NUMBER),
    "delete": ((FLAG, FLAG), NUMBER),
    "info": ((), INFO),
    "reading_info": ((), INFO),
    "peek": (
        (NUMBER,),
        st.none() | st.tuples(TEXT, st.lists(TEXT, max_size=3), st.binary(max_size=9), st.binary(max_size=9), NUMBER),
    ),
    "page_out": ((), None),
    "leased": ((TEXT, TEXT, NUMBER, NUMBER, NUMBER, NUMBER), None),
    "pacer_moved": ((TEXT, TEXT), None),
    "lease": ((TEXT, TEXT, st.tuples(NUMBER, NUMBER, NUMBER), NUMBER, NUMBER), None),
    "give_back": ((TEXT, TEXT, NUMBER, NUMBER, NUMBER, NUMBER), None),
    "set_queue_mode": ((st.sampled_from(("default", "lazy")),), None),
    "consumers_info": ((), st.lists(INFO, max_size=2)),
    "confirm": ((TEXT, RANGES), None),
    "refuse": ((TEXT, RANGES, FLAG), None),
    "deliver": ((TEXT, TEXT, st.lists(RUN, max_size=3)), None),
    "reading_ended": ((TEXT, TEXT, st.none()), None),
    "reply_to": ((TEXT, TEXT, TEXT, CONTENTS), None),
    "has_reply_key": ((TEXT,), FLAG),
    "limiter_request": ((TEXT, NUMBER), None),
    "limiter_request_now": ((TEXT, NUMBER), None),
    "limiter_return": ((TEXT, NUMBER), None),
    "bump": ((TEXT, NUMBER), None),
    "question": ((REPORT,), REPORT),
    "admit": ((TEXT, TEXT, TEXT, TEXT, TEXT), FLAG),
    "ended": ((TEXT, TEXT), FLAG),
    "remove": ((TEXT, TEXT), FLAG),
    "heartbeat": ((TEXT, TEXT, FLAG, MOMENT, NUMBER), None),
    "grant": ((MOMENT, MOMENT), None),
    "status": ((), st.dictionaries(TEXT, NUMBER, max_size=3)),
    "consensus": ((TEXT, st.binary(max_size=9)), None),
    "await_queue": ((TEXT, TEXT, TEXT), FLAG),
    "await_vhost": ((TEXT,), FLAG),
    "await_replica": ((TEXT,), FLAG),
    "follows": ((NUMBER,), None),
    "standing": ((), st.tuples(NUMBER, NUMBER, NUMBER)),
    "replica_status": ((), INFO),
    "sync_numbers": ((), st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=3)),
    "sync_floors": ((), st.tuples(NUMBER, st.lists(NUMBER, max_size=3))),
    "sync_window": ((NUMBER,), st.tuples(*[NUMBER] * 4, st.binary(max_size=32), st.binary(max_size=32))),
    "copy_lags": ((NUMBER,), FLAG),
    "copy_progress": ((NUMBER, INFO), NUMBER),
    "synchronise": ((FLAG,), FLAG),
    "quiesce": ((), NUMBER),
    "go_on": ((), None),
    "handover": ((NUMBER, st.binary(max_size=20)), None),
    "sync_held": (
        (NUMBER, NUMBER),
        st.tuples(NUMBER, NUMBER, NUMBER, st.lists(st.tuples(NUMBER, NUMBER), max_size=3), st.binary(max_size=16)),
    ),
    "sync_chunk": ((NUMBER,), st.tuples(NUMBER, NUMBER, CONTENTS)),
    "connections": ((), st.lists(ADDRESS, max_size=3)),
    "channels_info": ((), st.lists(INFO, max_size=2)),
    "register": ((ADDRESS, FLAG), None),
    "alarms": ((st.lists(st.sampled_from(("memory", "disk")), max_size=2).map(tuple),), None),
    "force_close": ((NUMBER, TEXT), None),
    "track_sessions": ((ADDRESS,), None),
    "session_counts": ((st.lists(st.tuples(TEXT, TEXT, NUMBER), max_size=3).map(tuple),), None),
    "open_session": ((ADDRESS,), ADDRESS),
    "client_addresses": ((), st.lists(st.builds(ClientAddress, TEXT, NUMBER, FLAG), max_size=2)),
    "begin_operation": ((TEXT, st.dictionaries(TEXT, NUMBER, max_size=3)), PIECE),
    "more_of_operation": ((), PIECE),
    "end_session": ((), None),
}


def letters():
    """The encoders at both ends of a link."""
    return Envelopes(MESSAGES, A, B), Envelopes(MESSAGES, B, A)


def arrive(sender, receiver, by, to, message):
    """Encode the message at `sender`, and return what `receiver` decodes from it."""
    ((sent_by, sent_to, decoded),) = receiver.decode(b"".join(body([sender.encode(by, to, message)])))
    assert (sent_by, sent_to) == (by, to)
    return decoded


@pytest.mark.parametrize(
    ("lane", "one", "other"),
    [
        ("control", "Members-3", "members"),
        ("control", "ClusterMetadata-4", "consensus"),
        ("control", "SessionTracking-5", "sessions"),
        ("data", "Channel-7", "q/ab12/0"),
        ("bulk", "NodeSupervisor-1", "q/ab12/0"),
        ("bulk", "NodeSupervisor-1", "node"),
        ("bulk", "ControlSession-9", "q/ab12/0"),
    ],
)
def test_the_lane_of_two_processes_is_the_same_both_ways(lane, one, other):
    """All messages between two processes use one lane, and large listings use another one than clients and heartbeats
    (CL-5).
    """
    assert (MESSAGES.lane(one, other), MESSAGES.lane(other, one)) == (lane, lane)


def test_all_messages_are_drawn():
    assert set(MESSAGES.by_name) == set(MESSAGE)


@pytest.mark.parametrize("name", MESSAGE)
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(name, data):
    """A message, an ask of it, and its answer are decoded as they were encoded (CL-12)."""
    fields, answer = MESSAGE[name]
    message = (name, *[data.draw(field) for field in fields])
    here, there = letters()
    assert arrive(here, there, CHANNEL, QUEUE, message) == message
    if answer is not None:
        assert arrive(here, there, CHANNEL, QUEUE, ("ask", 5, message)) == ("ask", 5, message)
        value = data.draw(answer)
        assert arrive(there, here, QUEUE, CHANNEL, ("$answer", 5, True, value)) == ("$answer", 5, True, value)


def test_nobody_waits_for_the_answer_to_an_ask_that_was_withdrawn():
    here, there = letters()
    arrive(here, there, CHANNEL, QUEUE, ("ask", 1, ("purge",)))
    assert not there.is_withdrawn(CHANNEL, 1)
    arrive(here, there, CHANNEL, QUEUE, ("$forget", 1))
    assert there.is_withdrawn(CHANNEL, 1)


def test_the_errors_of_a_queue_arrive():
    """The reply code and text that a queue refuses an ask with, or a reader fails with, arrive for the client."""
    here, there = letters()
    arrive(here, there, CHANNEL, QUEUE, ("ask", 1, ("purge",)))
    error = AmqpError(540, "no purge", 50, 30)
    name, ref, ok, arrived = arrive(there, here, QUEUE, CHANNEL, ("$answer", 1, False, error))
    assert (ref, ok, arrived.code, arrived.text, arrived.method_id) == (1, False, 540, "no purge", 30)
    ended = arrive(there, here, QUEUE, CHANNEL, ("reading_ended", "q", "tag", error))
    assert (ended[:3], ended[3].code) == (("reading_ended", "q", "tag"), 540)


def test_equal_origins_cross_once():
    """A run of many messages carries each of its origins once, and its contents unchanged (CL-13)."""
    here, there = letters()
    one, other = Origin("x", ("long key" * 20,)), Origin("x", ("k",))
    contents = [b"%04d" % number for number in range(500)]
    message = ("publish", "c", [([one, other] * 250, contents, 0, 1, True, 0)], "guest", 0, 0)
    _, packed, raw, _ = here.encode(CHANNEL, QUEUE, message)
    assert len(packed) < 1_000 and b"".join(raw) == b"".join(contents)
    ((origins, arrived, *_),) = arrive(*letters(), CHANNEL, QUEUE, message)[2]
    assert (origins, list(arrived)) == ([one, other] * 250, contents)


@pytest.mark.parametrize("contents", [[b"%04d" % number for number in range(500)], [b"x" * n for n in range(1, 99)]])
def test_a_run_that_passes_through_a_queue_is_not_taken_apart(contents):
    """What a queue hands on to a consumer of another node leaves as it came, from the memory it was read into."""
    message = ("publish", "c", [(Origin("x", ("k",)), contents, 0, 1, True, 0)], "guest", 0, 0)
    read = b"".join(body([letters()[0].encode(CHANNEL, QUEUE, message)]))
    here, there = letters()
    ((_, _, arrived),) = there.decode(read)
    run = arrived[2][0][1]
    answer = ("deliver", "q", "tag", [(Origin("x", ("k",)), False, None, run)])
    encoded = there.encode(QUEUE, CHANNEL, answer)
    assert [piece.obj is read for piece in encoded[2]] == [True]
    ((_, _, delivered),) = here.decode(b"".join(body([encoded])))
    assert list(delivered[3][0][3]) == contents


def test_a_run_keeps_no_more_than_its_own_bytes_of_a_large_read():
    """A run that is a small part of what was read is cut at once: one kept in a queue must not keep all of it."""
    message = ("publish", "c", [(Origin("x", ("k",)), [b"%04d" % n for n in range(50)], 0, 1, True, 0)], "guest", 0, 0)
    read = b"".join(body([letters()[0].encode(CHANNEL, QUEUE, message)]))
    ((_, _, arrived),) = letters()[1].decode(read + bytes(10_000), 0, len(read))
    assert type(arrived[2][0][1]) is list


@pytest.mark.parametrize(
    "message",
    [
        ("publish", "c", [(Origin("", ("q",)), [bytearray(b"1")], 1, 1, True, 0)], "guest", 0, 0),
        ("publish", "c", [(("", ("q",)), [b"1"], 1, 1, True, 0)], "guest", 0, 0),
        ("publish", "c", [(Origin("", ("q",)), [b"1"], 1, 1, True, -1)], "guest", 0, 0),
        ("settle", "c", "lose", [range(1)]),
        ("settle", "c", "ack", [["1"]]),
        ("consume", "c", CHANNEL, "t", True, False, 0, False, 0, {}, "guest"),
        ("start", None),
    ],
)
def test_a_mistake_is_the_senders(message):
    """A message that does not fit its contract raises an error at the sender, and is not sent."""
    with pytest.raises(NotCarried):
        letters()[0].encode(CHANNEL, QUEUE, message)


@given(st.sampled_from(sorted(MESSAGE)), st.data())
def test_a_changed_message_is_refused_or_another_one(name, data):
    """Changed bytes are decoded to a message that fits the contract, or are a CodecError, which ends the link."""
    fields, _ = MESSAGE[name]
    message = (name, *[data.draw(field) for field in fields])
    here, there = letters()
    frame = bytearray(b"".join(body([here.encode(CHANNEL, QUEUE, message)])))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = there.decode(bytes(frame))
    except CodecError:
        return
    for each in decoded:
        if not isinstance(each, Unknown) and each[2][0] in MESSAGE:
            arrive(there, here, QUEUE, CHANNEL, each[2])  # Encoding it again fails if it does not fit its contract.
