"""The views of a data directory that have no messages: its queues, its files, and what is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ...store.data_dir.data_dir import examine
from ...store.data_dir.vhost_dir import LEVEL_BITS, QUEUES, directory_number
from ...store.disk.read_only_disk import ReadOnlyDisk
from ...store.disk.system.boot_id import this_boot
from ...store.index.segment_file import segment_number
from ...store.verify.verify import include_vhost, verify
from ...store.verify.verify_metadata import check_metadata
from ...store.verify.verify_report import VerifyReport, VhostReport
from ...store.verify.verify_vhost import VhostPlace
from ..options import DirectoryOptions
from ..rows.columns import RowPlan
from .offline_files import file_rows
from .offline_names import OfflineVhost, offline_vhosts
from .offline_plan import locked, segment_entries
from .offline_queues import queue_rows

VIEWS = {
    "queues": (
        "vhost string, queue string, queue_id string, durable boolean, arguments string, messages bigint, "
        "body_bytes bigint, stored_messages bigint, first bigint, next bigint, oldest_arrived timestamp, "
        "next_expiry timestamp, segments int, index_bytes bigint, segment_messages bigint, journal_messages bigint, "
        "missing_bodies bigint"
    ),
    "files": (
        "vhost string, kind string, path string, bytes bigint, used_bytes bigint, garbage_bytes bigint, frames bigint, "
        "messages bigint, damaged_parts bigint"
    ),
    "damage": (
        "severity string, place string, offset bigint, bytes bigint, what string, consequence string, vhost string, "
        "queue string, first bigint, next bigint"
    ),
}


class DamageRow(NamedTuple):
    """A finding of the offline check.

    bytes          how many bytes are damaged from `offset` on
    queue          whose file it is; null for files of several queues
    first, next    the numbers that the file is for, if it is a segment
    """

    severity: str
    place: str
    offset: int | None
    bytes: int | None
    what: str
    consequence: str
    vhost: str | None = None
    queue: str | None = None
    first: int | None = None
    next: int | None = None


def view_batches(options: DirectoryOptions, rows: RowPlan) -> Iterator[Any]:
    """One batch with the rows of the view `queues`, `files` or `damage`."""
    with locked(options.path, options.needs_metadata) as path:
        values: list[tuple[Any, ...]]
        if options.view == "damage" and options.needs_metadata:
            values = list(damage_rows(options, path, verify(path, lambda found: ())))
        else:
            vhosts = offline_vhosts(path, options)
            report = checked(path, options, vhosts)
            if options.view == "damage":
                values = list(damage_rows(options, path, report))
            elif options.view == "files":
                values = list(file_rows(options, path, vhosts, report))
            else:
                values = list(queue_rows(vhosts, report))
    schema = rows.schema
    columns = zip(*values) if values else ([] for _ in schema)
    arrays = [pa.array(list(column), each.type) for each, column in zip(schema, columns)]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def checked(path: str, options: DirectoryOptions, vhosts: Iterable[OfflineVhost]) -> VerifyReport:
    """The offline check of a directory. If the options ignore its metadata, these virtual hosts are checked."""
    if options.needs_metadata:
        return verify(path, lambda found: ())
    report = VerifyReport(path, examine(path, needs_metadata=False) or 0)
    check_metadata(path, lambda found: (), report.findings)
    for vhost in vhosts:
        names = {number: queue.name for number, queue in vhost.queues.items()}
        shown = os.path.relpath(vhost.directory, path)
        place = VhostPlace(ReadOnlyDisk(vhost.directory), vhost.directory, shown, vhost.name, names, this_boot())
        include_vhost(report, place)
    return report


def damage_rows(options: DirectoryOptions, path: str, report: VerifyReport) -> Iterator[DamageRow]:
    """The findings, of the virtual host that the options name or of all."""
    by_directory = {vhost.directory: vhost for vhost in report.vhosts}
    for finding in report.findings:
        severity = finding.severity.name.lower()
        row = DamageRow(severity, finding.place, finding.offset, finding.size, finding.found, finding.outcome)
        parts = finding.place.split("/")
        vhost = by_directory.get("/".join(parts[:2]))
        if vhost is not None:
            row = _of_queue(row._replace(vhost=vhost.name), path, vhost, parts[2:])
        if options.vhost in (None, row.vhost):
            yield row


def _of_queue(row: DamageRow, path: str, vhost: VhostReport, parts: list[str]) -> DamageRow:
    """The row with the queue to which a place in a virtual host's directory belongs, if it belongs to one."""
    number = directory_number(parts[1]) if len(parts) > 1 and parts[0] == QUEUES else None
    if number is None:
        return row
    names = {queue.number: queue.name for queue in vhost.queues}
    row = row._replace(queue=names.get(f"{number >> LEVEL_BITS:x}"))
    segment = segment_number(parts[2]) if len(parts) > 2 else None
    # A priority queue numbers each priority by itself.
    if segment is None or number % (1 << LEVEL_BITS):
        return row
    entries = segment_entries(ReadOnlyDisk(f"{path}/{vhost.directory}"))
    return row._replace(first=segment * entries, next=(segment + 1) * entries)
