"""The fields of events as headers of an AMQP message, and as plain values for a command.

In a field table, a text is a longstr (`S`), an integer a 64-bit integer (`l`), a float a double (`d`), a boolean a
boolean (`t`), a list an array (`A`) and a dict a table (`F`). None is an empty longstr.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...amqp.fields import Table, table_to_dict


def as_table(fields: Mapping[str, object]) -> Table:
    """The headers of a message."""
    return Table([(name, *_typed(value)) for name, value in fields.items()])


def _typed(value: object) -> tuple[str, object]:
    if isinstance(value, bool):
        return "t", value
    if isinstance(value, int):
        return "l", value
    if isinstance(value, float):
        return "d", value
    if isinstance(value, Table):
        return "F", value
    if isinstance(value, Mapping):
        return "F", as_table(value)
    if isinstance(value, (list, tuple)):
        return "A", tuple(_typed(element) for element in value)
    return "S", ("" if value is None else str(value)).encode("utf-8", "surrogateescape")


def as_plain(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields for a command, which prints them as JSON."""
    return {name: table_to_dict(value) if isinstance(value, Table) else value for name, value in fields.items()}
