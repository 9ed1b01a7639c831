"""Headers as a variant keep the types of their values (SP-41). PySpark's own reader shows what they have become."""

import math
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pyspark.sql.types import VariantVal

from warren.amqp.fields import MAX_DEPTH, Table
from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties
from warren.spark.options import BatchOptions
from warren.spark.rows.messages import RunDescription, from_contents
from warren.spark.rows.properties import TOO_LATE
from warren.spark.rows.variant import variant


def entry(name, value):
    return (name, *value)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("l"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("b"), st.integers(-128, 127)),
    st.tuples(st.just("f"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, (1 << 32) - 1))),
    st.tuples(st.sampled_from("Sx"), st.binary(max_size=300)),
    st.tuples(st.just("S"), NAMES.map(str.encode)),
    st.tuples(st.just("T"), st.integers(0, (1 << 64) - 1) | st.integers(0, TOO_LATE - 1)),
    st.just(("V", None)),
)
VALUES = st.recursive(
    SCALARS,
    lambda values: (
        st.tuples(st.just("A"), st.lists(values, max_size=4).map(tuple))
        | st.tuples(st.just("F"), st.lists(st.builds(entry, NAMES, values), max_size=4).map(Table))
    ),
    max_leaves=12,
)


def plain(letter, value):
    """What PySpark makes of the variant of a header."""
    if letter == "F":
        return {name: plain(kind, each) for name, kind, each in reversed(value)}
    if letter == "A":
        return [plain(*each) for each in value]
    if letter == "D":
        scale, number = value
        fits = any(scale <= digits and number < 10**digits for digits in (9, 18, 38))
        return Decimal(number) * Decimal(10) ** -scale if fits else number / 10**scale
    if letter == "T":
        # PySpark shows a whole number that 64 bits do not hold as a decimal.
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value) if value < TOO_LATE else value
    if letter == "S":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def decoded(table):
    return VariantVal(**variant(table)).toPython()


@given(st.lists(st.builds(entry, NAMES, VALUES), max_size=6).map(Table))
def test_each_value_keeps_its_type(table):
    found, expected = decoded(table), plain("F", table)
    assert found == expected
    for name, value in expected.items():
        if not isinstance(value, int) or isinstance(value, bool):
            assert type(found[name]) is type(value)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 70_000])
def test_many_fields_and_items(count):
    """Counts and places have as many bytes as they need."""
    table = Table([("", "A", (("S", b"x"),) * count), *((f"n{number}", "I", number) for number in range(count))])
    assert decoded(table) == {"": ["x"] * count} | {f"n{number}": number for number in range(count)}


def test_the_first_of_several_headers_with_one_name_counts():
    assert decoded(Table([("a", "I", 1), ("a", "I", 2), ("b", "d", math.inf)])) == {"a": 1, "b": math.inf}


def test_headers_that_are_nested_as_deep_as_a_broker_allows():
    value = ("t", True)
    for level in range(MAX_DEPTH):
        value = ("A", (value,)) if level % 2 else ("F", Table([("a", *value)]))
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20 * MAX_DEPTH)  # PySpark's reader is recursive
    try:
        found = decoded(Table([("a", *value)]))
    finally:
        sys.setrecursionlimit(usual)
    for level in reversed(range(MAX_DEPTH)):
        (found,) = found.values() if level % 2 else found
    assert found == {"a": True}


@pytest.mark.parametrize("has_own", [False, True])
def test_a_row_has_its_headers_or_none(row_plan, has_own):
    """The column has a variant where a message has headers, whether messages share their properties or not."""
    tables = [None if number % 3 == 0 else Table([("n", "l", number)]) for number in range(200)]
    ids = [str(number) if has_own else None for number in range(200)]
    contents = [
        build_content(1, encode_properties(Properties(headers=table, message_id=id)), b"x", 4096)
        for table, id in zip(tables, ids)
    ]
    messages = from_contents(0, 200, range(200), contents, [RunDescription(200, "", ("k",), False)])
    plan = row_plan(BatchOptions.parse({"queue": "q", "columns": "headers", "headersFormat": "variant"}))
    batch = plan.batch("q", "", messages)
    batch.validate(full=True)
    for number, row in enumerate(batch.to_pylist()):
        if number % 3:
            assert VariantVal(**row["headers"]).toPython() == {"n": number}
        else:
            assert row["headers"] is None
