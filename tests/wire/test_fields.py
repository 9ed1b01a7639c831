"""Field tables (AB-46 to AB-48)."""

from __future__ import annotations

import pickle
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp.fields import (
    MAX_DEPTH,
    TYPE_NAMES,
    FieldError,
    Table,
    TooDeep,
    decode_table,
    encode_table,
    table_from,
    table_to_dict,
)

from .strategies import steady, tables

EVERY_TYPE = Table(
    [
        ("longstr", "S", b"Here is a long string"),
        ("signedint", "I", -12345),
        ("decimal", "D", (3, 123456)),
        ("timestamp", "T", 109876543209876),
        ("table", "F", Table([("one", "I", 54321), ("two", "S", b"A long string")])),
        ("byte", "b", -128),
        ("unsignedbyte", "B", 255),
        ("long", "l", -1234567890),
        ("short", "s", -655),
        ("unsignedshort", "u", 65535),
        ("unsignedint", "i", 4294967295),
        ("bool", "t", True),
        ("binary", "x", b"a binary string"),
        ("void", "V", None),
        ("float", "f", 0.5),
        ("double", "d", 3.141592653589793),
        ("array", "A", (("I", 54321), ("S", b"A long string"))),
    ]
)
EVERY_TYPE_OCTETS = (
    b"\x07longstrS\x00\x00\x00\x15Here is a long string"
    b"\x09signedintI\xff\xff\xcf\xc7"
    b"\x07decimalD\x03\x00\x01\xe2\x40"
    b"\x09timestampT\x00\x00\x63\xee\xa0\x53\xc1\x94"
    b"\x05tableF\x00\x00\x00\x1f\x03oneI\x00\x00\xd4\x31\x03twoS\x00\x00\x00\x0dA long string"
    b"\x04byteb\x80"
    b"\x0cunsignedbyteB\xff"
    b"\x04longl\xff\xff\xff\xff\xb6\x69\xfd\x2e"
    b"\x05shorts\xfd\x71"
    b"\x0dunsignedshortu\xff\xff"
    b"\x0bunsignedinti\xff\xff\xff\xff"
    b"\x04boolt\x01"
    b"\x06binaryx\x00\x00\x00\x0fa binary string"
    b"\x04voidV"
    b"\x05floatf\x3f\x00\x00\x00"
    b"\x06doubled\x40\x09\x21\xfb\x54\x44\x2d\x18"
    b"\x05arrayA\x00\x00\x00\x17I\x00\x00\xd4\x31S\x00\x00\x00\x0dA long string"
)


def test_table_codec() -> None:
    """AB-46: a table with every type encodes to these bytes, and they decode to the same table."""
    encoded = encode_table(EVERY_TYPE)
    assert encoded == struct.pack(">I", len(EVERY_TYPE_OCTETS)) + EVERY_TYPE_OCTETS
    assert decode_table(EVERY_TYPE_OCTETS) == EVERY_TYPE
    assert {letter for _, letter, _ in EVERY_TYPE} | {"L"} == set(TYPE_NAMES)


@steady
@given(tables)
def test_decoding_what_was_encoded_gives_the_same_table(table: Table) -> None:
    """AB-47, AB-48: letters, values, order and repeated names are kept, any number of times."""
    encoded = encode_table(table)
    again = decode_table(encoded[4:])
    assert again == table
    assert encode_table(again) == encoded


def test_upper_case_l_becomes_lower_case() -> None:
    """AB-46: `L` is decoded as i64 and encoded as `l`."""
    assert decode_table(b"\x01aL" + b"\xff" * 8) == (("a", "l", -1),)
    assert encode_table((("a", "L", -1),)) == b"\0\0\0\x0b\x01al" + b"\xff" * 8


def test_any_byte_but_zero_is_true() -> None:
    """Any byte but zero is true, because a bool is a u8 (AB-46)."""
    assert decode_table(b"\x01at\x02\x01bt\x00") == (("a", "t", True), ("b", "t", False))


def test_the_first_of_repeated_names_wins() -> None:
    """AB-46: names may repeat; order is preserved, lookup finds the first."""
    table = decode_table(b"\x01aB\x01\x01aB\x02")
    assert table.get("a") == ("B", 1)
    assert table.get("b") is None
    assert len(table) == 2


def test_names_may_hold_any_bytes() -> None:
    """AB-46: a name that is not UTF-8 survives a round trip."""
    assert encode_table(decode_table(b"\x02\xff\xfeV"))[4:] == b"\x02\xff\xfeV"


def test_replacing_and_removing_entries() -> None:
    """`replaced` and `without` return new tables."""
    table = Table([("a", "I", 1), ("b", "I", 2), ("a", "I", 3)])
    assert table.replaced("a", "S", b"x") == (("a", "S", b"x"), ("b", "I", 2))
    assert table.replaced("c", "V", None)[-1] == ("c", "V", None)
    assert table.without("a", "c") == (("b", "I", 2),)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x05abc",
        b"\x01a",
        b"\x01aS\x00\x00",
        b"\x01aS\x00\x00\x00\x05abcd",
        b"\x01aI\x00\x00",
        b"\x01at",
        b"\x01aD\x00",
        b"\x01aF\x00\x00\x00\x04\x01aS",
        b"\x01aA\x00\x00\x00\x02I\x00",
        b"\x01aA\xff\xff\xff\xff",
    ],
)
def test_a_table_that_is_cut_off_is_a_fault(encoded: bytes) -> None:
    """AB-38: the decoder reads no byte outside the table and raises only FieldError."""
    with pytest.raises(FieldError):
        decode_table(encoded)


def test_an_inner_length_cannot_reach_into_the_outer_table() -> None:
    """The length of an inner array cannot reach into the outer table: an array longer than its table is a fault, even
    if the outer table has as many bytes (AB-46).
    """
    inner = b"\x01aA\x00\x00\x00\x09I\x00\x00\x00\x01"
    with pytest.raises(FieldError):
        decode_table(b"\x01tF" + struct.pack(">I", len(inner)) + inner + b"\x01bI\x00\x00\x00\x02")


@pytest.mark.parametrize("letter", ["U", "z", "\xff"])
def test_an_unknown_letter_is_named(letter: str) -> None:
    """AB-46: the error has the unknown letter, so that the reply text can name it."""
    with pytest.raises(FieldError) as caught:
        decode_table(b"\x01a" + letter.encode("latin-1") + b"\x00\x00")
    assert caught.value.letter == letter


def _nest(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = b"A" + struct.pack(">I", len(value)) + value
    return b"\x01a" + value


def test_depth_is_bounded() -> None:
    assert decode_table(_nest(MAX_DEPTH))
    with pytest.raises(TooDeep, match="nested"):
        decode_table(_nest(MAX_DEPTH + 1))
    with pytest.raises(TooDeep, match="nested"):
        decode_table(_nest(20_000))


@pytest.mark.parametrize("letter", ["F", "A"])
def test_as_deep_as_allowed_everything_works(letter: str) -> None:
    """No function exhausts the stack at the greatest depth that is allowed: neither decoding nor encoding, comparing or
    pickling, wherever it is called.
    """
    value: tuple[str, Any] = ("I", 7)
    plain: Any = 7
    for _ in range(MAX_DEPTH):
        value = (letter, Table((("n", *value),)) if letter == "F" else (value,))
        plain = {"n": plain} if letter == "F" else [plain]
    table = Table((("n", *value),))
    encoded = encode_table(table)
    same = decode_table(encoded[4:])
    other = decode_table(encoded[4:-1] + b"\x08")
    assert same == table and not same != table and hash(same) == hash(table)
    assert other != table and not other == table
    assert table_from({"n": plain}) == table and pickle.loads(pickle.dumps(table)) == table
    found = table_to_dict(table)
    for _ in range(MAX_DEPTH + 1):
        found = found["n"] if isinstance(found, dict) else found[0]
    assert found == 7
    with pytest.raises(TooDeep):
        encode_table(Table((("n", "F", table),)))
    with pytest.raises(TooDeep):
        table_from({"n": {"n": plain}})


def test_a_table_equals_what_its_tuple_equals() -> None:
    """A table equals the tuple of its entries, and does not equal a scalar, a shorter table or one with another order
    of entries (AB-46).
    """
    table = table_from({"a": {"b": 1}, "c": [1, None]})
    assert table == tuple(table) and tuple(table) == table
    for unlike in (table_from({"a": 1, "c": [1, None]}), table_from({"a": {"b": 1}}), Table(reversed(table)), 1, None):
        assert table != unlike and not table == unlike


@pytest.mark.parametrize(
    ("letter", "value"), [("b", 128), ("B", -1), ("I", 1 << 31), ("T", -1), ("D", (256, 0)), ("I", "x"), ("z", 1)]
)
def test_a_value_its_letter_cannot_carry_is_refused(letter: str, value: Any) -> None:
    """A value that its letter cannot carry is refused with FieldError, and no other error."""
    with pytest.raises(FieldError):
        encode_table((("a", letter, value),))


@pytest.mark.parametrize("name", ["n" * 256, "\ud800"])
def test_a_name_that_is_no_short_string_is_refused(name: str) -> None:
    """A name longer than a short string, or with a surrogate that stands for no byte, is refused (AB-46)."""
    with pytest.raises(FieldError):
        encode_table(((name, "V", None),))


def test_plain_values_get_the_letters_that_clients_choose() -> None:
    """`table_from` gives plain values the letters that clients choose, and `table_to_dict` gives the values back."""
    when = datetime(2024, 1, 2, tzinfo=UTC)
    plain = {
        "n": None,
        "t": True,
        "i": 5,
        "l": 1 << 40,
        "f": 1.5,
        "s": "text",
        "b": b"bytes",
        "d": Decimal("1.25"),
        "m": {"x": 1},
        "a": [1, "two", [3]],
    }
    table = table_from({**plain, "when": when})
    assert [letter for _, letter, _ in table] == list("VtIldSxDFAT")
    assert table_to_dict(table) == {**plain, "when": int(when.timestamp())}
    assert decode_table(encode_table(table)[4:]) == table


@pytest.mark.parametrize("value", [1 << 63, object(), Decimal("-1"), Decimal("NaN"), "\udcff\ud800"])
def test_plain_values_without_a_letter_are_refused(value: object) -> None:
    """`table_from` raises FieldError for values that have no letter."""
    with pytest.raises(FieldError):
        table_from({"a": value})


# -- compared with pamqp, an independent implementation ---

_plain_scalars = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, width=32),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.none(),
)
_plain = st.recursive(
    _plain_scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=3),
    max_leaves=6,
)
plain_tables = st.dictionaries(st.text("abcd", min_size=1, max_size=8), _plain, max_size=5)


@steady
@given(plain_tables)
def test_pamqp_reads_what_we_write(plain: dict[str, Any]) -> None:
    """AB-46: pamqp decodes our tables to the same values."""
    encoded = encode_table(table_from(plain))
    used, decoded = pamqp.decode.field_table(encoded)
    assert used == len(encoded)
    assert decoded == plain


@steady
@given(plain_tables)
def test_we_read_what_pamqp_writes(plain: dict[str, Any]) -> None:
    """AB-46: with the letters that pamqp chooses we decode the same values, and encode them to the same bytes."""
    encoded = pamqp.encode.field_table(plain)
    table = decode_table(encoded[4:])
    assert table_to_dict(table) == plain
    assert encode_table(table) == encoded
