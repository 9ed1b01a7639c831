"""Encoding and decoding of methods (AB-38, AB-42, amqp-broker section 6)."""

from __future__ import annotations

import pickle
from typing import Any

import pamqp.commands
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from warren.amqp import methods as m
from warren.amqp.decoding import check_publish, decode_method, publish_fields
from warren.amqp.errors import AmqpError
from warren.amqp.fields import FieldError, Table, table_from, table_to_dict
from warren.amqp.method import Method
from warren.amqp.methods import METHODS, BasicPublish

from .strategies import methods, methods_of, steady
from .test_fields import plain_tables


@steady
@given(methods)
def test_decoding_what_was_encoded_gives_the_same_method(method: Method) -> None:
    """AB-42: this holds for every method with any field values."""
    payload = method.encode()
    assert decode_method(payload) == method
    assert decode_method(payload).encode() == payload


def test_every_method_of_the_specification_has_a_class() -> None:
    """amqp-broker section 6: 66 methods, and three that are internal in RabbitMQ."""
    assert len(METHODS) == 69
    assert METHODS[40, 51] is m.ExchangeUnbindOk
    assert {c.NAME for c in METHODS.values() if c.HAS_CONTENT} == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    }


def test_bits_share_an_octet_first_in_bit_0() -> None:
    """AB-42: the five bits of queue.declare are one octet."""
    payload = m.QueueDeclare(queue="q", durable=True, nowait=True).encode()
    assert payload == b"\x00\x32\x00\x0a\x00\x00\x01q\x12\x00\x00\x00\x00"


def test_bits_beyond_the_last_one_are_ignored() -> None:
    """AB-42: the unused bits of a bit octet may have any value."""
    assert decode_method(b"\x00\x3c\x00\x50" + b"\0" * 7 + b"\x07\xfe") == m.BasicAck(7, False)


def test_methods_can_be_pickled() -> None:
    """Methods can be pickled, because processes send them to each other."""
    method = m.BasicConsume(queue="q", arguments=table_from({"x-priority": 5}))
    assert pickle.loads(pickle.dumps(method)) == method


# -- faults ---


def fault(payload: bytes) -> tuple[int, str, int, int]:
    """The fields of the AmqpError that decoding `payload` raises."""
    with pytest.raises(AmqpError) as caught:
        decode_method(payload)
    error = caught.value
    return error.code, error.reply_text, error.class_id, error.method_id


def test_arguments_cut_off() -> None:
    """A method whose arguments are cut off is a 501 `cannot decode …` with the ids of the method and the text of
    RabbitMQ 3.10.8 (AB-38).
    """
    payload = m.BasicConsume(queue="q").encode()[:-2]
    assert fault(payload) == (501, "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0>>", 60, 20)


def test_bytes_after_the_last_argument() -> None:
    """Bytes after the last argument are a 501 `cannot decode …` too (AB-38)."""
    payload = m.BasicConsume(queue="q").encode() + b"zz"
    assert fault(payload) == (501, "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,0,0,122,122>>", 60, 20)


def test_a_name_that_is_not_utf8() -> None:
    """A name that is not UTF-8 in a method without content is a 501 without ids (AB-38)."""
    assert fault(m.BasicGet(queue="\udcff").encode()) == (501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0)


def test_not_utf8_and_undecodable() -> None:
    """Of a method with both faults, fields that do not fit are reported before names that are not UTF-8 (AB-38)."""
    payload = m.BasicGet(queue="\udcff").encode() + b"x"
    assert fault(payload) == (501, "FRAME_ERROR - cannot decode <<0,0,1,255,0,120>>", 60, 70)


def test_methods_with_content_are_not_checked_for_utf8() -> None:
    """Names in methods with content are not checked: a routing key may be any bytes, and keeps them (AB-38)."""
    payload = m.BasicPublish(routing_key="\udcff").encode()
    assert decode_method(payload) == m.BasicPublish(routing_key="\udcff")
    assert payload[8:9] == b"\xff"


def test_a_method_that_does_not_exist() -> None:
    """A method that does not exist gets 503 from warren, where RabbitMQ only drops the connection (AB-38)."""
    assert fault(b"\x00\x3c\x00\x63") == (503, "COMMAND_INVALID - unknown method (60, 99)", 60, 99)


def test_an_unknown_letter_in_a_table() -> None:
    """An unknown letter in a table gets 503 from warren, where RabbitMQ only drops the connection (AB-38)."""
    payload = m.BasicConsume(queue="q").encode()[:-4] + b"\0\0\0\3\1aU"
    assert fault(payload) == (503, "COMMAND_INVALID - field table: unknown type letter 'U'", 60, 20)


def test_a_table_that_is_cut_off() -> None:
    """A table that is cut off is a 501 `cannot decode …` (AB-38)."""
    payload = m.BasicConsume(queue="q").encode()[:-4] + b"\0\0\0\3\1aS"
    assert fault(payload) == (501, "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,0,3,1,97,83>>", 60, 20)


def test_a_table_nested_too_deeply() -> None:
    """A table that is nested too deeply is a 502."""
    value = b"V"
    for _ in range(513):
        value = b"A" + len(value).to_bytes(4, "big") + value
    payload = m.BasicConsume().encode()[:-4] + (len(value) + 2).to_bytes(4, "big") + b"\x01a" + value
    assert fault(payload)[:2] == (502, "SYNTAX_ERROR - field table: nested deeper than 512 levels")


def test_the_text_of_a_fault_is_bounded() -> None:
    """AB-50: the reply text is 255 bytes for a payload of any size."""
    code, text, _, _ = fault(m.BasicConsume().encode() + b"x" * 100_000)
    assert code == 501
    assert len(text) == 255


@steady
@given(methods, st.data())
def test_mangled_methods_are_decoded_or_an_amqp_error(method: Method, data: st.DataObject) -> None:
    """AB-38: the decoder raises only AmqpError."""
    payload = bytearray(method.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(payload)))
    try:
        decode_method(bytes(payload[:cut]))
    except AmqpError as error:
        assert error.code in (501, 502, 503)


@steady
@given(st.binary(max_size=20))
def test_checking_a_publish_is_as_strict_as_decoding_it(arguments: bytes) -> None:
    """AB-38: `check_publish` and `decode_method` find the same faults."""
    payload = b"\x00\x3c\x00\x28" + arguments
    try:
        decode_method(payload)
    except AmqpError as error:
        with pytest.raises(AmqpError) as caught:
            check_publish(payload)
        assert str(caught.value) == str(error)
    else:
        check_publish(payload)


def test_values_out_of_range_are_refused() -> None:
    """Encoding a method with values out of range raises FieldError."""
    with pytest.raises(FieldError):
        m.BasicQos(prefetch_count=65536).encode()
    with pytest.raises(FieldError):
        m.BasicCancel("x" * 256).encode()
    with pytest.raises(FieldError):
        m.BasicCancel("\ud800").encode()


# -- compared with pamqp, an independent implementation ---

# pamqp follows the text of 0-9-1, which lacks these methods or defines them differently.
_NOT_IN_PAMQP = {(30, 10), (30, 11), (60, 200), (60, 201), (60, 202)}
_SHARED = sorted(
    ids
    for ids, ours in METHODS.items()
    if ids not in _NOT_IN_PAMQP and (ids[0] << 16 | ids[1]) in pamqp.commands.INDEX_MAPPING
)
_NAMES = st.text("abcxyz-_.", min_size=1, max_size=20)
_FOR_PAMQP: dict[str, st.SearchStrategy[Any]] = {
    "o": st.integers(0, 127),
    "s": st.integers(0, 32767),
    "l": st.integers(0, (1 << 31) - 1),
    "L": st.integers(0, (1 << 63) - 1),
    "b": st.booleans(),
    "S": _NAMES,
    "X": _NAMES.map(str.encode),
    "T": plain_tables.map(table_from),
}
# For these deprecated fields pamqp writes its own default, or accepts only one value.
_FIXED = {
    "ticket": 0,
    "insist": False,
    "capabilities": "",
    "out_of_band": "0",
    "known_hosts": "",
    "cluster_id": "",
    "channel_id": b"0",
}
_FIXED_IN = {(10, 10): {"version_major": 0, "version_minor": 9}, (20, 10): {"out_of_band": "0"}}


def test_pamqp_knows_most_of_our_methods() -> None:
    """The comparison below covers most methods."""
    assert len(_SHARED) >= 60


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@given(st.data())
@settings(steady, max_examples=200)
def test_pamqp_and_we_agree_on_methods(data: st.DataObject) -> None:
    """amqp-broker section 6: both encode the same values to the same bytes, and pamqp decodes our bytes."""
    ids = data.draw(st.sampled_from(_SHARED))
    ours_class = METHODS[ids]
    theirs_class = pamqp.commands.INDEX_MAPPING[ids[0] << 16 | ids[1]]
    assert theirs_class.name.replace(".", "").lower() == ours_class.__name__.lower()
    values = [data.draw(_FOR_PAMQP[kind]) for kind in ours_class.SIGNATURE]
    for index, name in enumerate(ours_class.FIELDS):
        fixed = {**_FIXED, **_FIXED_IN.get(ids, {})}
        if name in fixed:
            values[index] = fixed[name]
        elif name in ("type", "exchange_type"):
            values[index] = "direct"
    ours = ours_class(*values)
    theirs = theirs_class()
    try:
        theirs.unmarshal(ours.encode()[4:])
    except ValueError:
        assume(False)
    for mine, name, kind in zip(values, theirs_class.__slots__, ours_class.SIGNATURE, strict=True):
        read = getattr(theirs, name)
        if isinstance(mine, Table):
            assert read == table_to_dict(mine)
        elif kind == "X":
            assert (read.encode() if isinstance(read, str) else read) == mine
        else:
            assert read == mine
    written = ours.encode()[:4] + theirs.marshal()
    if "T" not in ours_class.SIGNATURE:
        assert written == ours.encode()
        return
    # pamqp sorts its tables and chooses other letters for small numbers, so compare decoded values.
    for name, kind in zip(ours_class.FIELDS, ours_class.SIGNATURE, strict=True):
        mine, read = getattr(ours, name), getattr(decode_method(written), name)
        assert (table_to_dict(mine) == table_to_dict(read)) if kind == "T" else (mine == read)


@given(methods_of(BasicPublish))
@steady
def test_the_fields_of_a_publish_are_found_without_decoding_it(method: BasicPublish) -> None:
    """The quick search for the fields of a publish finds what the decoder finds."""
    payload = method.encode()
    check_publish(payload)
    assert publish_fields(payload) == (method.exchange, method.routing_key, method.mandatory, method.immediate)
