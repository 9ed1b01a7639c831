"""The series of a family: one with the sum over all objects, or one for each object with its labels (CM-333)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .exposition import Family, Labels, head, label_text, lines, shown

Row = dict[str, Any]


def queue_labels(row: Row) -> Labels:
    return (("vhost", row["vhost"]), ("queue", row["name"]))


def channel_labels(row: Row) -> Labels:
    return (("channel", f"<{row['node']}.{row['channel_id']}>"),)


def connection_labels(row: Row) -> Labels:
    return (("connection", f"<{row['node']}.{row['pid']}>"),)


def labelled(rows: Iterable[Row], labels: Callable[[Row], Labels]) -> list[tuple[str, Row]]:
    """Each object with the text of its labels, which all its series share."""
    return [(label_text(labels(row)), row) for row in rows]


def series(family: Family, objects: Iterable[tuple[str, Row]] | None, total: Callable[[], float]) -> Iterator[str]:
    """The series of a family for each of the `objects`; if these are None, one series with the `total`."""
    name = f"rabbitmq_{family.name}"
    return lines(name, family, [((), total())]) if objects is None else of_objects(name, family, objects)


def sum_of(family: Family, rows: Iterable[Row]) -> float:
    return sum(family.value(row) for row in rows)


def of_objects(name: str, family: Family, objects: Iterable[tuple[str, Row]]) -> Iterator[str]:
    """The series of one family for each object; ten thousand of them take a few milliseconds."""
    yield head(name, family)
    value = family.value
    for text, row in objects:
        found = value(row)
        yield f"{name}{text} {found if type(found) is int else shown(found)}"
