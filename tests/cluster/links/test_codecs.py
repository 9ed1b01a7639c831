"""Codecs: a value that is encoded and decoded comes back, and any other bytes are a value of the right type or an
error.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.links.encoding import codecs as c
from warren.runtime.exit_reason import ExitKind, ExitReason
from warren.runtime.system.address import LoopAddress


class Row(NamedTuple):
    name: str
    size: int = 3
    tag: bytes = b"x"


INTEGERS = st.integers(c.INT_MIN, c.INT_MAX)
SYSTEMS = st.sampled_from(["a@h-1", "b@h-2", "c@h-3"])
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(allow_nan=False), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), INTEGERS), inner, max_size=3),
    ),
    max_leaves=12,
)
ROW = c.RecordCodec(Row, c.TEXT, c.INTEGER, c.BYTES, defaults=(3, b"x"))
ROWS = st.builds(Row, st.text(), INTEGERS, st.binary())

#: For each name the codec, and a strategy for its values.
CODECS = {
    "text": (c.TEXT, st.text(st.characters(codec="utf-8"))),
    "broken text": (c.TEXT, st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))),
    "integer": (c.INTEGER, INTEGERS),
    "float": (c.FLOAT, st.floats(allow_nan=False)),
    "boolean": (c.BOOLEAN, st.booleans()),
    "bytes": (c.BYTES, st.binary()),
    "optional": (c.Optional(c.TEXT), st.one_of(st.none(), st.text())),
    "list": (c.Each(c.INTEGER), st.lists(INTEGERS)),
    "tuple of any length": (c.Each(c.TEXT, tuple), st.lists(st.text()).map(tuple)),
    "set": (c.Each(c.TEXT, frozenset), st.frozensets(st.text())),
    "tuple": (c.Parts(c.TEXT, c.INTEGER), st.tuples(st.text(), INTEGERS)),
    "record": (ROW, ROWS),
    "raw list": (c.Each(c.RAW_LIST), st.lists(st.lists(st.binary()))),
    "address": (c.ADDRESS, st.builds(lambda system, name: LoopAddress(f"{system}/{name}"), SYSTEMS, st.text())),
    "reason": (c.EXIT_REASON, st.builds(ExitReason, st.sampled_from(ExitKind), st.text())),
    "plain": (c.PLAIN, PLAIN),
}
each_codec = pytest.mark.parametrize(("codec", "values"), CODECS.values(), ids=CODECS)


def packed(value):
    return msgpack.packb(value, unicode_errors="surrogateescape")


def unpacked(data):
    return msgpack.unpackb(data, unicode_errors="surrogateescape", strict_map_key=False)


@each_codec
@given(data=st.data())
def test_values_come_out_as_they_went_in(codec, values, data):
    value = data.draw(values)
    out = c.Outgoing("a@h-1", "b@h-2")
    sent = packed(codec.encode(value, out))
    arrived = codec.decode(unpacked(sent), c.Incoming("b@h-2", "a@h-1", b"".join(out.raw)))
    assert arrived == value and type(arrived) is type(value)


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 300), st.floats(), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@each_codec
@given(value=ANYTHING, raw=st.binary(max_size=20))
def test_whatever_arrives_is_a_value_or_an_error(codec, values, value, raw):
    """Any bytes decode to an error or to a value that can be encoded, so that no value arrives which no node could have
    sent.
    """
    try:
        decoded = codec.decode(value, c.Incoming("b@h-2", "a@h-1", raw))
    except c.CodecError:
        return
    codec.encode(decoded, c.Outgoing("b@h-2", "a@h-1"))


@pytest.mark.parametrize(
    ("codec", "wrong"),
    [
        (c.TEXT, b"bytes"),
        (c.INTEGER, True),
        (c.INTEGER, 2**64),
        (c.FLOAT, 1),
        (c.BOOLEAN, 1),
        (c.Each(c.TEXT), ("a",)),
        (c.Parts(c.TEXT), ("a", "b")),
        (ROW, ("a", 1, b"")),
        (c.RAW_LIST, [memoryview(b"a")]),
        (c.ADDRESS, "a@h-1/Queue-1"),
        (c.EXIT_REASON, "normal"),
        (c.PLAIN, object()),
        (c.PLAIN, [[[{1: {2: {"a": object()}}}]]]),
    ],
)
def test_a_wrong_value_is_the_senders_mistake(codec, wrong):
    with pytest.raises(c.NotCarried):
        codec.encode(wrong, c.Outgoing("a@h-1", "b@h-2"))


def test_a_plain_value_that_is_nested_for_ever():
    value = []
    value.append(value)
    with pytest.raises(c.NotCarried, match="nested"):
        c.PLAIN.encode(value, c.Outgoing("a", "b"))


def test_fields_of_other_versions():
    """A newer sender's additional field is ignored; a field that an older sender lacks gets its default (QP-144)."""
    incoming = c.Incoming("b", "a", b"")
    assert ROW.decode(["n", 1, b"t", "new"], incoming) == Row("n", 1, b"t")
    assert ROW.decode(["n"], incoming) == Row("n", 3, b"x")
    assert ROW.decode(["n", 7], incoming) == Row("n", 7, b"x")
    with pytest.raises(c.CodecError):
        ROW.decode([], incoming)


def test_addresses_are_short_between_sender_and_receiver():
    out = c.Outgoing("a@h-1", "b@h-2")
    assert c.ADDRESS.encode(LoopAddress("a@h-1/Queue-7"), out) == [0, 0, "Queue-7"]
    assert c.ADDRESS.encode(LoopAddress("b@h-2/q/4/1"), out) == [1, 0, "q/4/1"]
    assert c.ADDRESS.encode(LoopAddress("c@h-3/meta"), out) == [2, 0, "meta", "c@h-3"]
