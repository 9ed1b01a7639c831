"""The offline check of the metadata: every row, whether rows refer to others that exist, and the log of consensus.

The store does not interpret rows, so the caller passes the broker's own interpretation: a function from all tables to
the changes that the next start makes because of rows that belong to nothing. It raises for a row that it cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..data_dir.data_dir import queue_number
from ..data_dir.metadata_store import TABLES, Change, MetadataError, MetadataStore, Row
from .verify_report import Findings

#: From the tables of `MetadataStore.load` to the deletions of rows that belong to nothing; raises for an unreadable
#: row.
Interpret = Callable[[Mapping[str, Sequence[Row]]], Sequence[Change]]

PLACE = "metadata"
_RESTORE = "warren refuses to start. Restore that directory from a backup"


@dataclass
class MetadataFound:
    """The virtual hosts, and the queues that exist.

    queues     by virtual host: names by the number of the queue (`queue_number`)
    is_whole   every row could be read
    """

    vhosts: list[str] = field(default_factory=list)
    queues: dict[str, dict[int, str]] = field(default_factory=dict)
    is_whole: bool = True


def check_metadata(path: str, interpret: Interpret, findings: Findings) -> MetadataFound:
    """Read the metadata of the data directory `path`."""
    found = MetadataFound()
    directory = f"{path}/{PLACE}"
    if os.path.isdir(f"{directory}.new"):
        findings.note(f"{PLACE}.new", "metadata that a crash left half made", "it is deleted")
    if not os.path.isdir(directory):
        findings.note(PLACE, "there is no metadata yet", "warren creates it")
        return found
    try:
        store = MetadataStore(directory, is_read_only=True)
    except MetadataError as error:
        findings.error(PLACE, str(error), "warren refuses to start")
        found.is_whole = False
        return found
    try:
        tables = {table: list(_rows(store, table, findings)) for table in TABLES}
        found.is_whole = not any(None in rows for rows in tables.values())
        _check_rows(
            found,
            {table: [row for row in rows if row is not None] for table, rows in tables.items()},
            interpret,
            findings,
        )
        store.load_log()
    except MetadataError as error:
        # Only the log raises: damaged rows are findings of their own.
        findings.error(PLACE, str(error), "warren refuses to start")
    finally:
        store.close()
    return found


def _rows(store: MetadataStore, table: str, findings: Findings) -> Iterator[Row | None]:
    """Each row of a table, None for one that cannot be read."""
    for row in store.read(table):
        if isinstance(row, MetadataError):
            findings.error(PLACE, str(row), _RESTORE)
            yield None
        else:
            yield row


def _check_rows(found: MetadataFound, tables: dict[str, list[Row]], interpret: Interpret, findings: Findings) -> None:
    for table in TABLES:
        for row, error in list(_uninterpretable(table, tables, interpret)):
            findings.error(PLACE, f"{_shown(table, row.key)} cannot be understood: {error!r}", _RESTORE)
            tables[table].remove(row)
            found.is_whole = False
    for change in interpret(tables):
        findings.note(
            PLACE,
            f"{_shown(change.table, change.key)} belongs to a missing row: a crash came between two changes",
            "it is deleted",
        )
    found.vhosts = sorted(row.key[0] for row in tables["vhosts"])
    for row in tables["queues"]:
        vhost, name = row.key
        queues = found.queues.setdefault(vhost, {})
        number = queue_number(row.fields["queue_id"])
        if number in queues:
            findings.error(
                PLACE,
                f"queues '{queues[number]}' and '{name}' of virtual host '{vhost}' have the same number {number:x}",
                "each of them delivers the messages of both. This is a fault of warren; please report it",
            )
        queues[number] = name


def _uninterpretable(
    table: str, tables: Mapping[str, Sequence[Row]], interpret: Interpret
) -> Iterator[tuple[Row, Exception]]:
    """The rows of one table that cannot be interpreted, and the error of each.

    Halves the table until it finds them, because one call for each row would take too long.
    """

    def search(rows: Sequence[Row]) -> Iterator[tuple[Row, Exception]]:
        try:
            interpret(
                {
                    **dict.fromkeys(TABLES, ()),
                    **{before: tables[before] for before in TABLES[: TABLES.index(table)]},
                    table: rows,
                }
            )
            if table == "queues":
                for row in rows:
                    queue_number(row.fields["queue_id"])
        except Exception as error:
            if len(rows) == 1:
                yield rows[0], error
            else:
                yield from search(rows[: len(rows) // 2])
                yield from search(rows[len(rows) // 2 :])

    yield from search(tables[table])


def _shown(table: str, key: Sequence[object]) -> str:
    return f"{table.removesuffix('s')} {' '.join(repr(part) for part in key)}"
