"""How the results of commands are written: for people, for scripts that read RabbitMQ's tables, and as JSON or CSV.

    table          tabs between columns, as rabbitmqctl writes it; aligned and coloured if a person reads it
    pretty_table   a box
    json           one array with one object a line; json_stream: one object a line
    csv            RFC 4180, line end LF
    inspect        Python's notation of what json writes; `erlang` is the same

A table of AMQP arrives as `{"table": [[name, type, value], ...]}`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

Row = dict[str, Any]

#: The formatters whose output is for programs: no banner goes before it.
MACHINE = frozenset({"json", "json_stream", "csv"})

#: Columns whose values are addresses; RabbitMQ writes them as arrays of numbers in JSON (CM-30).
ADDRESS_COLUMNS = frozenset({"host", "peer_host"})


def _table(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    # As with rabbitmqctl, a listing without rows has no header either.
    for index, row in enumerate(rows):
        if headers and not index:
            yield "\t".join(columns)
        yield "\t".join(cell(row.get(name, "")) for name in columns)


def _aligned(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    """For a person: columns one below the other, numbers to the right, names of columns bold."""
    values = [[row.get(name, "") for name in columns] for row in rows]
    cells = [[cell(value) for value in row] for row in values]
    if not cells and not headers:
        return
    widths = [
        max([len(name) if headers else 0, *(len(row[index]) for row in cells)]) for index, name in enumerate(columns)
    ]
    numeric = [
        bool(values)
        and all(isinstance(row[index], (int, float)) and not isinstance(row[index], bool) for row in values)
        for index in range(len(columns))
    ]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if right else text.ljust(width) for text, width, right in zip(texts, widths, numeric)
        ]
        return "  ".join(padded).rstrip()

    if headers:
        yield click.style(line(columns), bold=True)
    for row in cells:
        yield line(row)


def _pretty(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    cells = [[cell(row.get(name, "")) for name in columns] for row in rows]
    widths = [max([len(name), *(len(row[index]) for row in cells)]) for index, name in enumerate(columns)]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def line(texts: Sequence[str]) -> str:
        return "│" + "│".join(f" {text.ljust(width)} " for text, width in zip(texts, widths)) + "│"

    yield rule("┌", "┬", "┐")
    if headers:
        yield line(columns)
        yield rule("├", "┼", "┤")
    for row in cells:
        yield line(row)
    yield rule("└", "┴", "┘")


def _json(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    yield "["
    for index, row in enumerate(rows):
        yield ("," if index else "") + dumped(_json_row(columns, row))
    yield "]"


def _json_stream(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    for row in rows:
        yield dumped(_json_row(columns, row))


def _csv(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    for index, row in enumerate(rows):
        if headers and not index:
            yield _csv_line(columns)
        yield _csv_line([cell(row.get(name, ""), escape=False) for name in columns])


def _csv_line(texts: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="").writerow(texts)
    return line.getvalue()


def _inspect(columns: Sequence[str], rows: Iterable[Row], headers: bool) -> Iterator[str]:
    yield repr([_json_row(columns, row) for row in rows])


LISTING_FORMATTERS: dict[str, Callable[[Sequence[str], Iterable[Row], bool], Iterator[str]]] = {
    "table": _table,
    "pretty_table": _pretty,
    "json": _json,
    "json_stream": _json_stream,
    "csv": _csv,
    "inspect": _inspect,
    "erlang": _inspect,
}


def listing(
    formatter: str, columns: Sequence[str], rows: Iterable[Row], headers: bool, is_person: bool
) -> Iterator[str]:
    """The lines of a listing."""
    if formatter == "table" and is_person:
        return _aligned(columns, rows, headers)
    return LISTING_FORMATTERS[formatter](columns, rows, headers)


def cell(value: Any, escape: bool = True) -> str:
    """A value in a table, on one line (CM-29, CM-32)."""
    text = _text(value)
    # A printable text has no control character to escape, and this test takes a tenth of the translation's time.
    return text.translate(_ESCAPES) if escape and not text.isprintable() else text


#: An escape for every control character. Clients choose names, and a terminal would obey control characters in them.
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))},
    **{9: "\\t", 10: "\\n", 13: "\\r", 0: "\\0", 27: "\\e"},
}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict) and set(value) == {"table"}:
        return "[" + ",".join(f'{{"{name}",{_term(kind, inner)}}}' for name, kind, inner in value["table"]) + "]"
    if isinstance(value, dict):
        return dumped(value)
    if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        return "{" + ",".join(_text(one) for one in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(one) for one in value) + "]"
    return str(value)


def _term(kind: str, value: Any) -> str:
    """A value of an AMQP table as rabbitmqctl writes it."""
    if kind == "table":
        return _text({"table": value})
    if kind == "array":
        return "[" + ",".join(_term(*one) for one in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _json_row(columns: Sequence[str], row: Row) -> Row:
    return {name: _json_value(name, row.get(name, "")) for name in columns}


def _json_value(column: str, value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"table"}:
        return value["table"]
    if column in ADDRESS_COLUMNS and isinstance(value, str) and value.count(".") == 3:
        return [int(part) if part.isdigit() else part for part in value.split(".")]
    return value


def dumped(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
