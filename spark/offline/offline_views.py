"""The views of a data directory that have no messages: its queues, its files, and what is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...amqp.fields import decode_table_at, table_to_dict
from ...store.verify.verify import verify
from ..options import DirectoryOptions
from ..rows.columns import RowPlan
from .offline_files import file_rows
from .offline_plan import locked, queues, tables, vhosts

VIEWS = {
    "queues": (
        "vhost string, queue string, queue_id string, durable boolean, arguments string, messages bigint, "
        "body_bytes bigint, segment_messages bigint, journal_messages bigint, missing_bodies bigint, segments int"
    ),
    "files": (
        "vhost string, kind string, path string, bytes bigint, used_bytes bigint, garbage_bytes bigint, frames bigint, "
        "messages bigint, damaged_parts bigint"
    ),
    "damage": "severity string, place string, offset bigint, what string, consequence string",
}


def view_batches(options: DirectoryOptions, rows: RowPlan) -> Iterator[Any]:
    """One batch with the rows of the view `queues`, `files` or `damage`."""
    with locked(options.path) as path:
        report = verify(path, lambda found: ())
        if options.view == "damage":
            values: list[tuple[Any, ...]] = [
                (finding.severity.name.lower(), finding.place, finding.offset, finding.found, finding.outcome)
                for finding in report.findings
            ]
        elif options.view == "files":
            values = list(file_rows(options, path, report))
        else:
            counted = {(vhost.name, queue.name): queue for vhost in report.vhosts for queue in vhost.queues}
            values = []
            for vhost in vhosts(path, options):
                fields = {row.key[1]: row.fields for row in tables(path)["queues"] if row.key[0] == vhost}
                for name, queue_id in sorted(queues(path, vhost, options.queue).values()):
                    found = counted.get((vhost, name))
                    counts = (
                        (0, 0, 0, 0, 0, 0)
                        if found is None
                        else (
                            *(found.messages, found.message_bytes, found.segment_messages),
                            *(found.journal_messages, found.missing_bodies, found.segments),
                        )
                    )
                    shown = _arguments(fields[name].get("arguments"))
                    values.append((vhost, name, queue_id, fields[name].get("durable", True), shown, *counts))
    schema = rows.schema
    columns = zip(*values) if values else ([] for _ in schema)
    arrays = [pa.array(list(column), each.type) for each, column in zip(schema, columns)]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arguments(encoded: Any) -> str:
    """The arguments of a declaration as JSON."""
    if not isinstance(encoded, bytes):
        return "{}"
    return json.dumps(table_to_dict(decode_table_at(encoded, 0)[0]), default=str, sort_keys=True)
