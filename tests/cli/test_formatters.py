"""How results are written: for any values, a table has one line for each row, and CSV and JSON can be parsed back."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cli.formatters import cell, listing

TEXTS = st.text(max_size=20) | st.sampled_from(["\t", "\n", '"', ",", "\r\n", "\\", "é", "\x1b[0m", "\udcff"])
VALUES = TEXTS | st.integers() | st.booleans() | st.none() | st.lists(TEXTS, max_size=3) | st.floats(allow_nan=False)
ROWS = st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), max_size=5)


def lines(formatter, rows, headers=True, is_person=False):
    return list(listing(formatter, ("a", "b"), iter(rows), headers, is_person))


@given(ROWS)
def test_a_table_has_one_line_for_each_row(rows):
    """A table has one line for each row, whatever characters its values contain (CM-25, CM-32)."""
    found = lines("table", rows)
    assert len(found) == len(rows) + bool(rows)
    for line in found:
        assert line.count("\t") == 1
        assert "\n" not in line and "\r" not in line
    assert lines("table", rows, headers=False) == found[1:]


@given(ROWS)
def test_csv_parses_back(rows):
    """CSV, read with a parser for RFC 4180, gives the values back (CM-27)."""
    text = "\n".join(lines("csv", rows)) + "\n"
    found = list(csv.reader(io.StringIO(text, newline="")))
    if rows:
        assert found[0] == ["a", "b"]
        assert found[1:] == [[cell(row["a"], escape=False), cell(row["b"], escape=False)] for row in rows]


@given(ROWS)
def test_json_parses_back(rows):
    """JSON, read with a parser, gives the values back (CM-26)."""
    assert json.loads("\n".join(lines("json", rows))) == rows
    assert [json.loads(line) for line in lines("json_stream", rows)] == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        ([], "[]"),
        (["a", "b"], "[a, b]"),
        ([0, 9, 1], "{0,9,1}"),
        ({"table": []}, "[]"),
        (
            {
                "table": [
                    ["n", "signedint", 1],
                    ["t", "table", [["x", "bool", True]]],
                    ["a", "array", [["longstr", "v"]]],
                ]
            },
            '[{"n",1},{"t",[{"x",true}]},{"a",["v"]}]',
        ),
        ("two\nlines", "two\\nlines"),
        ("a\tb", "a\\tb"),
        ("\x1b[2J\x9b2J\x07\x7f\x00é", "\\e[2J\\x9b2J\\x07\\x7f\\0é"),
    ],
)
def test_values_in_tables(value, text):
    """Values in tables look as in rabbitmqctl (CM-29, CM-32)."""
    assert cell(value) == text


def test_a_box_for_people():
    """`pretty_table` draws a box around the rows (CM-28)."""
    rows = [{"a": "x", "b": 12}, {"a": "two\nlines", "b": True}]
    assert lines("pretty_table", rows) == [
        "┌────────────┬──────┐",
        "│ a          │ b    │",
        "├────────────┼──────┤",
        "│ x          │ 12   │",
        "│ two\\nlines │ true │",
        "└────────────┴──────┘",
    ]


def test_addresses_and_protocols_are_arrays_in_json():
    """In JSON addresses and protocols are arrays, as in RabbitMQ, and a column that a row lacks is the empty text
    (CM-30).
    """
    row = {"peer_host": "127.0.0.1", "host": "::1", "protocol": [0, 9, 1]}
    columns = ("peer_host", "host", "protocol", "ssl_hash")
    [line] = listing("json_stream", columns, iter([row]), True, False)
    assert json.loads(line) == {"peer_host": [127, 0, 0, 1], "host": "::1", "protocol": [0, 9, 1], "ssl_hash": ""}
