"""Which files of an archive count, and what is noted of each. No Spark is needed for these notes.

TARGET/_warren/files/            a row for each file of a micro-batch
TARGET/_warren/checkpoint/       where each micro-batch ends (`checkpoint`)
TARGET/_warren/compacted.json    the files into which others were merged; they stand for all within their ranges

The first folder has the form of Spark's sink of files, which wrote it in earlier versions. Its log has an entry for
each micro-batch, or one that repeats all before it (`.compact`). An entry commits its micro-batch.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet

from ...store.disk.system.file_lock import locks
from ..errors import archive_busy, wrong_options
from .hidden_file import sync_file, sync_folder

#: The folder of an archive beside those of its queues.
OWN = "_warren"
#: The file in it that names the format of an archive which Spark itself writes.
THROUGH_SPARK = "through_spark"
#: The version of `compacted.json`.
VERSION = 1
#: After so many micro-batches an entry of the log repeats all entries before it, so that a reader needs few files.
REPEATED = 100
#: The folder of the log among the notes, the first line of an entry, and the end of the name of one that repeats all.
_LOG, _ENTRY, _WHOLE = "_spark_metadata", "v1", ".compact"


class ArchivedFile(NamedTuple):
    """The archive's entry for a range of a queue. `path` is relative to the target; None if the range has no message.

    first, next    the range; rows + gone + gaps are the count of its numbers
    gone           numbers whose messages had left the queue before they were read
    gaps           numbers that no message was ever given
    bytes          the size of the file
    arrived_…      when the first and the last message arrived; None if that is not known of one of the messages
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


_MOMENT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("path", "queue", "queue_id")),
        *((name, pa.int64()) for name in ("first", "next", "rows", "gone", "gaps", "bytes")),
        *((name, _MOMENT) for name in ("arrived_least", "arrived_most")),
        ("at", pa.int64()),
    ]
)


@contextmanager
def alone(target: str, job: str) -> Iterator[None]:
    """Hold the lock of this job on an archive; `job` may have the name of a run behind a slash. The operating system
    releases the lock when the process ends. Raises SparkSourceError E7 while another run has it.
    """
    os.makedirs(f"{target}/{OWN}", exist_ok=True)
    with open(f"{target}/{OWN}/{job.replace('/', '-')}.lock", "w", encoding="utf-8") as file:
        if not locks.try_lock(file.fileno(), is_shared=False):
            raise archive_busy(target, job)
        yield


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
    return sorted([*others, *merged], key=place_of)


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
    rows = [file_to_json(file) for file in sorted(files, key=place_of)]
    replace_text(f"{target}/{OWN}/compacted.json", f'{{"v": {VERSION}, "files": [\n' + ",\n".join(rows) + "\n]}\n")


def replace_text(path: str, text: str) -> None:
    """Write a small file so that a crash leaves the old one or the new one."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    sync_folder(os.path.dirname(path))


def file_to_json(file: ArchivedFile) -> str:
    """The entry as one line of JSON."""
    return json.dumps(file._asdict(), default=datetime.isoformat)


def file_from_json(text: str) -> ArchivedFile:
    """The entry that `file_to_json` has written."""
    return _entry(json.loads(text))


def _entry(row: dict[str, Any]) -> ArchivedFile:
    times = {name: row[name] and datetime.fromisoformat(row[name]) for name in ("arrived_least", "arrived_most")}
    return ArchivedFile(**row | times)


def place_of(file: ArchivedFile) -> tuple[str, str, int]:
    """Queue and first number, by which files are sorted."""
    return file.queue, file.queue_id, file.first


def committed_files(target: str) -> list[ArchivedFile]:
    """The files of committed micro-batches, by queue and number, also those that have been merged since."""
    return sorted(CommittedFiles(target).take(), key=place_of)


class CommittedFiles:
    """Reads the notes about the files of committed micro-batches. Each call returns those that were committed since the
    last one.
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
        entries = {number: entry for number, entry in _entries(self._folder).items() if number > self._batch}
        self._batch = max(entries, default=self._batch)
        first = max((number for number, entry in entries.items() if entry.suffix == _WHOLE), default=0)
        return [entry for number, entry in sorted(entries.items()) if number >= first]


def _entries(folder: str) -> dict[int, Path]:
    """The entries of the log by their micro-batches; of two with the same number the one that repeats all others."""
    found: dict[int, Path] = {}
    log = Path(folder, _LOG)
    for entry in log.iterdir() if log.exists() else ():
        if entry.stem.isdigit() and entry.suffix in ("", _WHOLE) and (entry.suffix or int(entry.stem) not in found):
            found[int(entry.stem)] = entry
    return found


def last_committed(target: str) -> int:
    """The number of the last micro-batch that is complete; -1 if there is none."""
    return max(_entries(f"{target}/{OWN}/files"), default=-1)


def commit_files(target: str, batch: int, files: Sequence[ArchivedFile]) -> None:
    """Note the files of a micro-batch, which is complete with that."""
    folder = f"{target}/{OWN}/files"
    os.makedirs(f"{folder}/{_LOG}", exist_ok=True)
    path = f"{folder}/{batch:020}.parquet"
    rows = [file._asdict() for file in files]
    pa.parquet.write_table(pa.Table.from_pylist(rows, _SCHEMA), path)
    sync_file(path)
    sync_folder(folder)
    status = os.stat(path)
    note = {
        **{"path": f"file://{quote(path)}", "size": status.st_size, "isDir": False, "action": "add"},
        **{"modificationTime": int(status.st_mtime * 1000), "blockReplication": 1, "blockSize": 32 << 20},
    }
    lines = [json.dumps(note)]
    name = str(batch)
    if batch % REPEATED == REPEATED - 1:
        entries = _entries(folder)
        whole = max((number for number, entry in entries.items() if entry.suffix == _WHOLE), default=0)
        before = [entry for number, entry in sorted(entries.items()) if whole <= number < batch]
        lines = [line for entry in before for line in entry.read_text("utf-8").splitlines()[1:]] + lines
        name += _WHOLE
    replace_text(f"{folder}/{_LOG}/{name}", "\n".join([_ENTRY, *lines]))
    if name != str(batch):
        _drop_repeated(folder, batch - REPEATED)


def _drop_repeated(folder: str, below: int) -> None:
    """Remove the entries before a number, which a later entry repeats. A reader that has listed the log has read those
    long ago, because a hundred more micro-batches have ended since.
    """
    for number, entry in _entries(folder).items():
        if number < below:
            entry.unlink(missing_ok=True)
