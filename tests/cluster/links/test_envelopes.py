"""Messages between actors: only listed ones cross, and received bytes raise nothing but a CodecError."""

from __future__ import annotations

import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thespian.actors import ActorExitRequest

from warren.amqp.errors import AmqpError
from warren.cluster.links.encoding.codecs import ADDRESS, INTEGER, RAW_LIST, TEXT, CodecError, NotCarried
from warren.cluster.links.encoding.envelopes import Envelopes, Unknown, body
from warren.cluster.links.encoding.registry import ERRORS, Crossing, Registry
from warren.runtime.contract import Contract, message
from warren.runtime.errors import ProcessDown, ProcessError, ProcessTimeout, UnknownMessage
from warren.runtime.exit_reason import NOCONNECTION, ExitKind, ExitReason
from warren.runtime.system.address import LoopAddress


class ToThing(Contract):
    @message
    def put(self, name: str, contents: list[bytes], size: int = 5) -> int: ...

    @message
    def meet(self, other: object) -> None: ...


to_thing = ToThing()
REGISTRY = Registry(
    [
        Crossing(100, to_thing.put, TEXT, RAW_LIST, INTEGER, answer=INTEGER),
        Crossing(101, to_thing.meet, ADDRESS),
    ],
    {"queen": "control", "Queen": "control", "copy": "bulk"},
)
HERE, THERE = LoopAddress("a-1/Thing-4"), LoopAddress("b-2/q/7/1")
DOWN = ExitReason(ExitKind.CRASH, "it broke")


@pytest.fixture
def sides():
    return Envelopes(REGISTRY, "a-1", "b-2"), Envelopes(REGISTRY, "b-2", "a-1")


def carried(from_side, to_side, sender, target, *messages):
    encoded = [from_side.encode(sender, target, one) for one in messages]
    found = to_side.decode(b"".join(body(encoded)))
    assert all(one[:2] == (sender, target) for one in found)
    return [message for _, _, message in found]


def test_one_frame_carries_many_messages(sides):
    messages = [
        to_thing.put("a", [b"one", b"", b"three"]),
        to_thing.put("\udcff", [], 9),
        to_thing.meet(HERE),
        ("$monitor", 1),
        ("$demonitor", 1),
        ("$down", 4, DOWN),
        to_thing.put("b", [b"four"], 1),
    ]
    assert carried(*sides, HERE, THERE, *messages) == messages


def test_asks_and_answers(sides):
    """An answer is encoded as its ask requires. Asks that were answered or forgotten leave nothing behind."""
    a, b = sides
    asks = [("ask", ref, to_thing.put("a", [b"x"])) for ref in (1, 2, 3)]
    assert carried(a, b, HERE, THERE, *asks) == asks
    assert carried(a, b, HERE, THERE, ("$forget", 3)) == [("$forget", 3)]
    answers = carried(b, a, THERE, HERE, ("$answer", 2, True, 77), ("$answer", 1, False, ProcessDown(DOWN)))
    assert answers[0] == ("$answer", 2, True, 77)
    assert answers[1][:3] == ("$answer", 1, False) and answers[1][3].reason == DOWN
    assert b._asked == {}


def test_a_wrong_answer_fails_the_ask(sides):
    """An answer of the wrong type fails the ask, because the asker would otherwise wait for ever."""
    a, b = sides
    carried(a, b, HERE, THERE, ("ask", 1, to_thing.put("a", [])))
    ((_, _, ok, error),) = carried(b, a, THERE, HERE, ("$answer", 1, True, "text"))
    assert not ok and "the answer to put cannot be sent" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        AmqpError(404, "no queue", 50, 10),
        AmqpError(505, "x", fatal=True),
        ProcessError("refused", 3),
        ProcessTimeout("late"),
        UnknownMessage("what?"),
        ProcessDown(NOCONNECTION),
    ],
)
def test_errors_cross(sides, error):
    a, b = sides
    carried(a, b, HERE, THERE, ("ask", 1, to_thing.put("a", [])))
    ((_, _, _, arrived),) = carried(b, a, THERE, HERE, ("$answer", 1, False, error))
    assert type(arrived) is type(error) and arrived.args == error.args and arrived.__dict__ == error.__dict__


class OurError(ProcessError):
    pass


def test_an_error_that_is_not_listed_is_its_text(sides):
    a, b = sides
    carried(a, b, HERE, THERE, ("ask", 1, to_thing.put("a", [])))
    ((_, _, _, arrived),) = carried(b, a, THERE, HERE, ("$answer", 1, False, OurError(object, "so")))
    assert type(arrived) is ProcessError and "OurError" in str(arrived)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (("steal", 1), "steal is not listed"),
        (("ask", 1, ("steal",)), "steal is not listed"),
        (("put", "a"), "has 1 fields instead of 3"),
        (("put", 4, [], 1), "4 is not str"),
        (("put", "a", [], 2**70), "an integer of more than 64 bits"),
        (ActorExitRequest(), "ActorExitRequest cannot be sent"),
        ("text", "a str cannot be sent"),
        (("$turn",), "is not listed"),
    ],
)
def test_what_is_not_listed_is_the_senders_mistake(sides, message, reason):
    with pytest.raises(NotCarried, match=reason):
        sides[0].encode(HERE, THERE, message)


def test_messages_of_a_newer_version(sides):
    """An unknown message is dropped; if it was an ask, the asker gets an error."""
    newer = Registry([Crossing(100, to_thing.put, TEXT, RAW_LIST, INTEGER), Crossing(999, to_thing.meet, ADDRESS)])
    a, b = Envelopes(newer, "a-1", "b-2"), sides[1]
    encoded = [a.encode(HERE, THERE, one) for one in (to_thing.meet(HERE), ("ask", 8, to_thing.meet(HERE)))]
    told, asked = b.decode(b"".join(body(encoded)))
    assert told == Unknown(999, "Thing-4", "q/7/1", None) and asked.ref == 8
    ((_, target, answer),) = a.decode(b"".join(body([b.unknown_answer(asked)])))
    assert target == HERE and answer[:3] == ("$answer", 8, False)
    assert "does not know the message with the number 999" in str(answer[3])


def test_missing_fields_have_the_defaults_of_the_contract(sides):
    data = msgpack.packb([[100, "q/7/1", "Thing-4", "a", [2]]])
    (found,) = sides[1].decode(struct.pack(">I", len(data)) + data + b"hi")
    assert found == (HERE, THERE, ("put", "a", [b"hi"], 5))


@given(st.binary(max_size=200))
def test_any_bytes(data):
    try:
        Envelopes(REGISTRY, "b-2", "a-1").decode(data)
    except CodecError:
        pass


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 105), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=20,
)


@given(
    st.lists(
        st.builds(
            lambda number, fields: [number, "q/7/1", "Thing-4", *fields],
            st.one_of(st.integers(0, 6), st.integers(99, 102)),
            st.lists(VALUES, max_size=5),
        ),
        max_size=3,
    ),
    st.binary(max_size=10),
)
def test_any_messages(items, raw):
    """Any arrays that look like messages raise nothing but a CodecError."""
    data = msgpack.packb(items)
    side = Envelopes(REGISTRY, "b-2", "a-1")
    try:
        found = side.decode(struct.pack(">I", len(data)) + data + raw)
    except CodecError:
        return
    assert len(found) == len(items)


def test_lanes_follow_from_the_kinds(sides):
    """Both directions between two processes use the same lane, for every message."""
    for one, other, lane in [("Thing-1", "q/1/1", "data"), ("Queen-1", "queen", "control"), ("Copy-1", "copy", "bulk")]:
        assert REGISTRY.lane(one, other) == REGISTRY.lane(other, one) == lane


def test_entries_fit_their_contracts():
    with pytest.raises(TypeError, match="has 3 fields, and 1 codecs"):
        Crossing(100, to_thing.put, TEXT)
    with pytest.raises(ValueError, match="the runtime's own"):
        Crossing(3, to_thing.meet, ADDRESS)
    with pytest.raises(ValueError, match="listed twice"):
        Registry([Crossing(100, to_thing.meet, ADDRESS), Crossing(101, to_thing.meet, ADDRESS)])


def test_no_error_is_unpickled_by_name():
    with pytest.raises(CodecError):
        ERRORS.decode(["os.system", ["x"]], None)
