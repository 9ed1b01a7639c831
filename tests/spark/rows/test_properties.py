"""Any message that a broker accepts has a row: no header, key or name that a publisher has chosen makes a task fail."""

import json

import pytest

from warren.amqp.fields import MAX_DEPTH, Table, table_from
from warren.amqp.frames import build_content
from warren.amqp.properties import Properties, encode_properties
from warren.spark.archive.archive_reader import MADE_SCHEMA
from warren.spark.options import BatchOptions
from warren.spark.rows.columns import RowPlan
from warren.spark.rows.messages import RunDescription, from_contents
from warren.spark.rows.properties import headers_as_json, headers_as_map

FORMATS = pytest.mark.parametrize("format", ["map", "json"])
#: A name of bytes that are not UTF-8, as the wire's names are decoded.
ODD = b"k\xff".decode("utf-8", "surrogateescape")


def rows(row_plan, headers, key="k", **given):
    """The rows of one message in a table of Spark."""
    options = BatchOptions.parse({"queue": "q", "columns": "all", **given})
    content = build_content(1, encode_properties(Properties(headers=headers)), b"x", 4096)
    messages = from_contents(0, 1, [0], [content], [RunDescription(1, "", (key, key), False)])
    batch = row_plan(options).batch("q", "", messages)
    batch.validate(full=True)
    assert RowPlan(MADE_SCHEMA, BatchOptions.parse({"queue": "q"})).batch("q", "", messages).num_rows == 1
    return batch.to_pylist()


@FORMATS
def test_headers_that_are_nested_as_deep_as_a_broker_allows(row_plan, format):
    """Tables and arrays 512 levels deep become JSON, although Python's own encoder cannot make it."""
    value = ("t", True)
    for level in range(MAX_DEPTH - 1):
        value = ("A", (value, value)) if level == 0 else ("A", (value,)) if level % 2 else ("F", Table([("a", *value)]))
    (row,) = rows(row_plan, Table([("deep", *value)]), headersFormat=format)
    text = row["headers"] if format == "json" else dict(row["headers"])["deep"]
    assert text.count("[") == text.count("]") >= MAX_DEPTH // 2 and "[true,true]" in text


def test_headers_as_json_are_what_python_makes_of_them():
    table = table_from({"a": [1, "é", None, {"b": [], "c": {}}, 1.5, True], "e": {}, 'q"': b"\xff", "n": None})
    expected = {"n": None, 'q"': "base64:/w==", "e": {}, "a": [1, "é", None, {"c": {}, "b": []}, 1.5, True]}
    assert headers_as_json(table) == json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    assert dict(headers_as_map(table))["a"] == '[1,"é",null,{"c":{},"b":[]},1.5,true]'


@pytest.mark.parametrize("count", [("t", True), ("T", 2**64 - 1), ("d", 1.5), ("S", b"3"), ("l", -(2**63))])
def test_a_death_with_any_count(row_plan, count):
    """A publisher may write its own header x-death. A count that is no integer of 64 bits is null."""
    death = Table([("queue", "S", b"a"), ("count", *count), ("time", "T", 2**64 - 1)])
    (row,) = rows(row_plan, Table([("x-death", "A", (("F", death),))]))
    (found,) = row["x_death"]
    assert (found["queue"], found["count"], found["time"]) == ("a", count[1] if count[0] == "l" else None, None)


def test_names_that_are_not_utf_8(row_plan):
    """Routing keys and names of headers may have any bytes."""
    (row,) = rows(row_plan, Table([(ODD, "S", b"v")]), ODD)
    assert {row["routing_key"], *row["routing_keys"], *dict(row["headers"])} == {"k\ufffd"}
