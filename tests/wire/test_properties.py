"""Message properties (AB-43, AB-48)."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pamqp.commands
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.fields import FieldError, table_from, table_to_dict
from warren.amqp.properties import (
    FLAG_EXPIRATION,
    FLAG_PRIORITY,
    NO_PROPERTIES,
    Properties,
    decode_properties,
    encode_properties,
    property_flags,
)

from .strategies import properties, short_strings, steady


def test_flags_go_down_from_bit_15_in_the_order_of_the_specification() -> None:
    """AB-43: each property alone sets its flag."""
    for index, field in enumerate(fields(Properties)):
        value: Any = {"headers": table_from({}), "delivery_mode": 1, "priority": 2, "timestamp": 3}.get(field.name, "v")
        encoded = encode_properties(Properties(**{field.name: value}))
        assert property_flags(encoded) == 1 << 15 - index
        assert getattr(decode_properties(encoded), field.name) == value


def test_flags_can_be_read_without_decoding() -> None:
    """AB-43: each flag shows whether its property is present."""
    flags = property_flags(encode_properties(Properties(priority=3)))
    assert flags & FLAG_PRIORITY
    assert not flags & FLAG_EXPIRATION


def test_no_properties() -> None:
    """AB-43: no properties are encoded as flags only."""
    assert encode_properties(Properties()) == NO_PROPERTIES
    assert decode_properties(NO_PROPERTIES) == Properties()


def test_the_two_low_bits_are_ignored() -> None:
    """AB-43: bits 1 and 0 mean nothing in input."""
    assert decode_properties(b"\x08\x03\x05") == Properties(priority=5)


@steady
@given(properties)
def test_content_transcoding(original: Properties) -> None:
    """AB-48: decoding and encoding in any sequence changes nothing."""
    encoded = encode_properties(original)
    decoded = decode_properties(encoded)
    assert decoded == original
    assert encode_properties(decoded) == encoded
    assert decode_properties(encode_properties(decoded)) == original


@pytest.mark.parametrize(
    "props",
    [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\x80\x00\x05abc",
        b"\x00\x00x",
        b"\x20\x00\x00\x00\x00\x05\x01aS",
        b"\x20\x00\x00\x00\x00\x03\x01aU",
        b"\x00\x40\x00\x00\x00",
        b"\x10\x00",
    ],
)
def test_properties_that_cannot_be_decoded_are_an_internal_error(props: bytes) -> None:
    """Properties that cannot be decoded are a 541 with the text `INTERNAL_ERROR` alone (AB-38)."""
    with pytest.raises(AmqpError) as caught:
        decode_properties(props)
    assert caught.value.reply_text == "INTERNAL_ERROR"
    assert caught.value.is_connection_error


@steady
@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_or_an_amqp_error(props: bytes) -> None:
    """AB-38: the decoder raises only AmqpError."""
    try:
        decode_properties(props)
    except AmqpError as error:
        assert error.code == 541


@pytest.mark.parametrize(
    "wrong",
    [
        Properties(priority=256),
        Properties(timestamp=-1),
        Properties(app_id="x" * 256),
        Properties(priority=-1),
        Properties(app_id="\ud800"),  # stands for no byte, unlike U+DC80 to U+DCFF
    ],
)
def test_values_out_of_range_are_refused(wrong: Properties) -> None:
    """Encoding properties with values out of range raises FieldError."""
    with pytest.raises(FieldError):
        encode_properties(wrong)


_for_pamqp = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short_strings,
        "content_encoding": short_strings,
        "headers": st.dictionaries(st.text("abc", min_size=1, max_size=5), st.integers(0, 1 << 40), max_size=4),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "correlation_id": short_strings,
        "reply_to": short_strings,
        "expiration": short_strings,
        "message_id": short_strings,
        # pamqp takes a larger number for milliseconds.
        "timestamp": st.integers(0, (1 << 32) - 1).map(lambda n: datetime.fromtimestamp(n, tz=UTC)),
        "message_type": short_strings,
        "user_id": short_strings,
        "app_id": short_strings,
    },
)


def _ours(given_values: dict[str, Any]) -> Properties:
    values = dict(given_values)
    if "headers" in values:
        values["headers"] = table_from(values["headers"])
    if "timestamp" in values:
        values["timestamp"] = int(values["timestamp"].timestamp())
    if "message_type" in values:
        values["type"] = values.pop("message_type")
    return Properties(**values)


@steady
@given(_for_pamqp)
def test_pamqp_and_we_agree_on_properties(values: dict[str, Any]) -> None:
    """AB-43: each decodes what the other encodes. (Bytes are not compared, because pamqp leaves out empty strings.)"""
    ours = _ours(values)
    theirs = pamqp.commands.Basic.Properties(**values)
    encoded = theirs.marshal()
    decoded = decode_properties(encoded)
    for field in fields(Properties):
        mine, read = getattr(ours, field.name), getattr(decoded, field.name)
        if field.name == "headers" and mine is not None and read is not None:
            mine, read = table_to_dict(mine), table_to_dict(read)
        assert read == mine or (read is None and not mine)
    written = encode_properties(ours)
    back = pamqp.commands.Basic.Properties()
    back.unmarshal(property_flags(written), written[2:])
    for name, value in values.items():
        assert getattr(back, name) == value
