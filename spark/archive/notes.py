"""Which files of an archive count, and what is noted of each. No Spark is needed to read these notes.

TARGET/_warren/files/            a row for each file of a micro-batch, written by Spark's own sink of files
TARGET/_warren/checkpoint/       Spark's checkpoint of the query
TARGET/_warren/compacted.json    the files into which others were merged; they stand for all within their ranges
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from ..errors import wrong_options
from .hidden_file import sync_folder

#: The folder of an archive beside those of its queues.
OWN = "_warren"
#: The file in it that names the format of an archive which Spark itself writes.
THROUGH_SPARK = "through_spark"
#: The version of `compacted.json`.
VERSION = 1


class ArchivedFile(NamedTuple):
    """The archive's entry for a range of a queue. `path` is relative to the target; None if the range has no message.

    first, next    the range; rows + gone + gaps are the count of its numbers
    gone           numbers whose messages had left the queue before they were read
    gaps           numbers that no message was ever given
    bytes          the size of the file
    at             the trigger's time in milliseconds since the epoch
    """

    path: str | None
    queue: str
    queue_id: str
    first: int
    next: int
    rows: int
    gone: int
    gaps: int
    bytes: int
    arrived_least: datetime | None
    arrived_most: datetime | None
    at: int


#: The schema of `ArchivedFile` in Spark's DDL.
FILE_DDL = (
    "path string, queue string, queue_id string, first bigint, next bigint, rows bigint, gone bigint, gaps bigint, "
    "bytes bigint, arrived_least timestamp, arrived_most timestamp, at bigint"
)


def require_archive(target: str) -> str:
    """The absolute path of an archive. Raises SparkSourceError E4 if there is none."""
    target = os.path.abspath(target)
    if not os.path.isdir(f"{target}/{OWN}"):
        raise wrong_options(f"'{target}' is no archive: it has no folder '{OWN}'")
    form = format_of(target)
    if form is not None:
        raise wrong_options(
            f"Spark itself has written this archive: read it by spark.read.format('{form}').load('{target}')"
        )
    return target


def format_of(target: str) -> str | None:
    """The format of Spark in which Spark itself writes an archive; None if tasks write its files."""
    try:
        with open(f"{target}/{OWN}/{THROUGH_SPARK}", encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def noted_files(target: str) -> list[ArchivedFile]:
    """The files that have the messages of an archive, by queue and number. Parts of merged files are left out."""
    merged = compacted_files(target)
    if not merged:
        return committed_files(target)
    ranges: dict[tuple[str, str], list[ArchivedFile]] = {}
    for file in merged:
        ranges.setdefault((file.queue, file.queue_id), []).append(file)
    others = [
        file for file in committed_files(target) if not _is_within(file, ranges.get((file.queue, file.queue_id), []))
    ]
    return sorted([*others, *merged], key=_place)


def _is_within(file: ArchivedFile, merged: Sequence[ArchivedFile]) -> bool:
    """Whether one of these files of the same queue, in the order of their numbers, covers the range of the file."""
    place = bisect_right(merged, file.first, key=lambda each: each.first) - 1
    return place >= 0 and merged[place].first <= file.first and file.next <= merged[place].next


def compacted_files(target: str) -> list[ArchivedFile]:
    """The files into which others were merged, by queue and number."""
    path = Path(target, OWN, "compacted.json")
    if not path.exists():
        return []
    return [_entry(row) for row in json.loads(path.read_text("utf-8"))["files"]]


def write_compacted(target: str, files: Sequence[ArchivedFile]) -> None:
    """Replace the notes of merged files."""
    rows = [json.dumps(file._asdict(), default=datetime.isoformat) for file in sorted(files, key=_place)]
    replace_text(f"{target}/{OWN}/compacted.json", f'{{"v": {VERSION}, "files": [\n' + ",\n".join(rows) + "\n]}\n")


def replace_text(path: str, text: str) -> None:
    """Write a small file so that a crash leaves the old one or the new one."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    sync_folder(os.path.dirname(path))


def _entry(row: dict[str, Any]) -> ArchivedFile:
    times = {name: row[name] and datetime.fromisoformat(row[name]) for name in ("arrived_least", "arrived_most")}
    return ArchivedFile(**row | times)


def _place(file: ArchivedFile) -> tuple[str, str, int]:
    return file.queue, file.queue_id, file.first


def committed_files(target: str) -> list[ArchivedFile]:
    """The files of committed micro-batches, by queue and number, also those that have been merged since."""
    return sorted(CommittedFiles(target).take(), key=_place)


class CommittedFiles:
    """Reads the notes about the files of committed micro-batches. Each call returns those that were committed since the
    last one.

    Spark's file sink lists its files in a log that has an entry for each micro-batch, or one that repeats all before it
    (`.compact`).
    """

    def __init__(self, target: str) -> None:
        self._folder = f"{target}/{OWN}/files"
        #: The last micro-batch whose entry was read, and the names of the notes in the entries until then.
        self._batch = -1
        self._known: set[str] = set()

    def take(self) -> list[ArchivedFile]:
        """The files of the micro-batches that were committed since the last call, in no order."""
        found = []
        for name in self._new_notes():
            for row in pa.parquet.read_table(f"{self._folder}/{name}").to_pylist():
                # Spark writes times in UTC into Parquet, but without the zone, so it is added here.
                times = {
                    name: row[name] and row[name].replace(tzinfo=UTC) for name in ("arrived_least", "arrived_most")
                }
                found.append(ArchivedFile(**row | times))
        return found

    def _new_notes(self) -> list[str]:
        """The names of files with notes that entries of the log name for the first time."""
        names = []
        for entry in self._new_entries():
            for line in entry.read_text("utf-8").splitlines()[1:]:
                status = json.loads(line)
                # The log has absolute paths; the archive may have been moved since.
                name = os.path.basename(unquote(status["path"]))
                if status.get("action", "add") == "add" and name not in self._known:
                    self._known.add(name)
                    names.append(name)
        return names

    def _new_entries(self) -> list[Path]:
        """The log's entries that are newer than the last one that was read. Those before the newest `.compact` entry
        are left out, because it repeats them.
        """
        log = Path(self._folder, "_spark_metadata")
        if not log.exists():
            return []
        entries: dict[int, Path] = {}
        first = 0
        for entry in log.iterdir():
            number, _, ending = entry.name.partition(".")
            if not number.isdigit() or ending not in ("", "compact") or int(number) <= self._batch:
                continue
            if ending == "compact":
                first = max(first, int(number))
                entries[int(number)] = entry
            else:
                entries.setdefault(int(number), entry)
        self._batch = max(entries, default=self._batch)
        return [entry for number, entry in sorted(entries.items()) if number >= first]
