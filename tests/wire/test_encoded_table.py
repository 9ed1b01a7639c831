"""What is found in an encoded table is what decoding finds, in short tables and in long ones."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren.amqp.encoded_table import Unsound, check_entries, split_entries
from warren.amqp.errors import AmqpError
from warren.amqp.fields import FieldError, Table, decode_table, encode_table, table_from
from warren.amqp.properties import ALL_HEADERS, Properties, decode_properties, decode_some, encode_properties

from .strategies import properties, tables

thorough = settings(deadline=None, max_examples=300)

#: Entries that make a table long.
LONG = encode_table(table_from({f"name {number}": number for number in range(60)}))[4:]
#: The same, but that a value in the middle is a table.
UNEVEN = LONG + encode_table(table_from({"": {"x": [1, {}]}}))[4:] + LONG

paddings = st.sampled_from([b"", LONG, UNEVEN])


def is_sound(data):
    try:
        check_entries(data, 0, len(data))
    except (Unsound, IndexError):
        return False
    return True


def can_be_decoded(data):
    try:
        decode_table(data)
    except (FieldError, IndexError):
        return False
    return True


def entries(table):
    return encode_table(table)[4:]


@thorough
@given(paddings, tables, paddings)
def test_whole_entries_are_sound(before, table, behind):
    assert is_sound(before + entries(table) + behind)


@thorough
@given(paddings, tables, paddings, st.data())
def test_it_refuses_what_cannot_be_decoded(before, table, behind, data):
    """A table that cannot be decoded, because a byte is replaced or its end is missing, is refused."""
    whole = before + entries(table) + behind
    end = data.draw(st.integers(0, len(whole)))
    at = data.draw(st.integers(0, max(0, end - 1)))
    changed = bytearray(whole[:end])
    if changed:
        changed[at] = data.draw(st.sampled_from([0, 1, 2, 63, 64, 255, *b"SVItFAxD?"]))
    assert is_sound(bytes(changed)) == can_be_decoded(bytes(changed))


names = st.sampled_from(["", "CC", "a", "name 7", "name 59", "x", "é", "x" * 255])


@thorough
@given(
    paddings,
    st.lists(st.tuples(names, st.sampled_from([("I", 5), ("S", b"\x02CC\x01a"), ("V", None), ("A", (("S", b"CC"),))]))),
    paddings,
    st.sets(names, max_size=5),
    st.booleans(),
)
@example(LONG, [], b"", {"name 7"}, True)
def test_entries_are_found_by_their_names(before, drawn, behind, wanted, with_many):
    table = Table([(name, *field) for name, field in drawn])
    data = b"ab" + before + entries(table) + behind + b"c"
    encoded = {name.encode() for name in wanted}
    searched = encoded | {b"unknown %d" % number for number in range(50)} if with_many else encoded
    found, others = split_entries(data, 2, len(data) - 1, searched)
    whole = decode_table(data[2:-1])
    assert decode_table(found) == Table([entry for entry in whole if entry[0] in wanted])
    assert decode_table(others) == whole.without(*wanted)


@thorough
@given(properties, st.sampled_from([b"", UNEVEN]), st.booleans())
def test_some_headers_and_the_others_make_up_all(values, padding, are_many):
    if values.headers is not None:
        values.headers = Table((*values.headers, ("CC", "V", None), *decode_table(padding) * (20 if are_many else 1)))
    props = encode_properties(values)
    some, others = decode_some(props, (b"CC", b"name 7"))
    again = decode_properties(encode_properties(some, others))
    if others:
        assert {entry[0] for entry in some.headers} <= {"CC", "name 7"}
        wanted = [entry for entry in values.headers if entry[0] in ("CC", "name 7")]
        values.headers = Table((*wanted, *values.headers.without("CC", "name 7")))
    assert again == values
    assert decode_some(props, None) == (decode_properties(props), b"")


@pytest.mark.parametrize("fault", [b"\x01a?", b"\x05a", b"\x01aS\0\0\0\x05abc"])
def test_many_headers_that_are_unsound_are_refused(fault):
    table = LONG * 20 + fault
    assert len(table) > ALL_HEADERS
    with pytest.raises(AmqpError):
        decode_some(b"\x20\0" + len(table).to_bytes(4, "big") + table, (b"CC",))


def test_long_tables_of_simple_values_are_checked_without_a_step_for_each():
    """Checking a long table of simple values takes no step for each of them, counted in lines of Python that run:
    26,000 headers fit into a frame.
    """
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    data = b"".join([b"\x03%03dV\x03%03dI\0\0\0\x05\x03%03dS\0\0\0\x01x" % (n, n, n) for n in range(999)])
    array = b"\x01aA" + (9_999).to_bytes(4, "big") + b"V" * 9_999
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        check_entries(data + array, 0, len(data + array))
        found, others = split_entries(data, 0, len(data), (b"500",))
    finally:
        sys.settrace(before)
    assert len(found) == 5 + 9 + 10 and len(found) + len(others) == len(data)
    assert lines < 150


def test_properties_without_headers_have_none_of_them():
    assert decode_some(encode_properties(Properties(message_id="m")), (b"CC",)) == (Properties(message_id="m"), b"")
