"""AddedHeader gives the same content as decoding the properties, adding the header and encoding them again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.added_header import AddedHeader
from warren.amqp.fields import FieldError, Table, encode_table
from warren.amqp.frames import build_content, content_body, content_properties
from warren.amqp.properties import Properties, decode_properties, encode_properties

from .strategies import properties

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(properties, st.binary(max_size=50), NUMBERS)
def test_the_content_has_one_more_header_and_is_otherwise_the_same(given_properties, body, number):
    props = encode_properties(given_properties)
    added = AddedHeader(props, "x-added").add(build_content(1, props, body, 20), number)
    expected = decode_properties(props)
    expected.headers = Table([*(expected.headers or ()), ("x-added", "l", number)])
    assert decode_properties(content_properties(added)) == expected
    assert added == build_content(1, encode_properties(expected), body, 20)
    assert content_body(added) == body


def test_a_header_of_the_same_name_is_replaced():
    props = encode_properties(
        Properties(
            headers=Table([("a", "S", b"1"), ("x-added", "S", b"old"), ("b", "t", True), ("x-added", "I", 7)]),
            app_id="x",
        )
    )
    added = AddedHeader(props, "x-added").add(build_content(1, props, b"body", 100), 8)
    assert decode_properties(content_properties(added)).headers == Table(
        [("a", "S", b"1"), ("b", "t", True), ("x-added", "l", 8)]
    )


@pytest.mark.parametrize(
    "props",
    [b"\x80\x00", b"\x80\x00\x05abc", b"\x20\x00\x00", b"\x20\x00" + encode_table(Table([("a", "t", True)]))[:-1]],
)
def test_properties_that_are_cut_off_are_refused(props):
    with pytest.raises(FieldError):
        AddedHeader(props, "x-added")
