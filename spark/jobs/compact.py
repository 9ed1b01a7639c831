"""The job `compact` merges the small files of an archive into few large ones. It needs neither Spark nor Java.

Files of one queue and date whose ranges adjoin become one file of the joint range. For each of these:

1. `TARGET/_warren/compaction.json` names the new file and its parts.
2. The new file is written under a hidden name, checked against its parts, synced and renamed.
3. The new file is noted in `TARGET/_warren/compacted.json`. From then on it stands for its parts.
4. The parts are removed, and then `compaction.json`.

A run that finds `compaction.json` ends what a killed run had begun: it removes the parts if the new file is noted, and
otherwise the new file. Between the steps 2 and 4 readers that do not read the notes find the messages twice, so
only files of days that are over are merged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ..archive.chosen_queues import queues_in_archive
from ..archive.hidden_file import HiddenFile
from ..archive.notes import (
    OWN,
    ArchivedFile,
    alone,
    committed_files,
    compacted_files,
    noted_files,
    replace_text,
    require_archive,
    write_compacted,
)
from ..archive.parquet_files import date_of, file_path
from ..errors import is_full, no_space_to_merge, wrong_options

#: The most bytes of the parts that become one file.
TARGET_SIZE = 256 << 20
#: Rows that are read at a time.
BATCH_ROWS = 16_384


@dataclass(frozen=True)
class CompactResult:
    """What a run has done.

    files       files that were merged
    into        files that they have become
    bytes       size of these
    problems    what kept other files from being merged: a file that is damaged or missing, and why
    """

    files: int
    into: int
    bytes: int
    problems: tuple[str, ...]


def compact(
    target: str,
    *,
    older_than: timedelta = timedelta(days=1),
    target_size: int = TARGET_SIZE,
    queue: str | None = None,
    now: datetime | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> CompactResult:
    """Merge the files of an archive.

    older_than     only files of days, in UTC, that ended at least this long ago
    target_size    the most bytes of parts that become one file
    queue          only files of this queue, or of the shards of this one
    now            the time by which days are over; the clock's if it is not given
    on_progress    gets the number of files that were merged, and of those that are to be

    Messages may be archived into the same folder meanwhile. Raises SparkSourceError: E4 if there is no archive, E7
    while another run merges files, E14 if the disk is full.
    """
    target = require_archive(target)
    with alone(target, "compact"):
        _end_interrupted(target)
        closed = ((now or datetime.now(UTC)) - older_than).date().isoformat()
        noted = noted_files(target)
        chosen = queues_in_archive(noted, None if queue is None else [queue])
        groups = list(_groups(noted, closed, target_size, chosen))
        total = sum(_count(group) for group in groups)
        files = into = size = 0
        problems: list[str] = []
        for group in groups:
            found = _problem(target, group)
            if found is None:
                size += _merge(target, group)
                files, into = files + _count(group), into + 1
            else:
                problems.append(found)
            if on_progress is not None:
                on_progress(files, total)
    return CompactResult(files, into, size, tuple(problems))


def _count(group: Sequence[ArchivedFile]) -> int:
    return sum(file.path is not None for file in group)


def _groups(
    files: Sequence[ArchivedFile], closed: str, target_size: int, queues: Collection[str]
) -> Iterator[list[ArchivedFile]]:
    """Groups of files; each group becomes one file. Between its files a group also has the entries without a file
    that stand for ranges without a message. All are in the order of their numbers.

    closed    files of this date and later are left as they are
    queues    files of other queues are left as they are, too
    """
    group: list[ArchivedFile] = []
    for file in files:
        if group and _fits(group, file, target_size):
            group.append(file)
            continue
        yield from _whole(group)
        is_wanted = file.queue in queues and file.path is not None and date_of(file.path) < closed
        group = [file] if is_wanted else []
    yield from _whole(group)


def _fits(group: Sequence[ArchivedFile], file: ArchivedFile, target_size: int) -> bool:
    first, last = group[0], group[-1]
    assert first.path is not None
    return (
        (file.queue, file.queue_id, file.first) == (last.queue, last.queue_id, last.next)
        and (file.path is None or date_of(file.path) == date_of(first.path))
        and sum(each.bytes for each in group) + file.bytes <= target_size
    )


def _whole(group: list[ArchivedFile]) -> Iterator[list[ArchivedFile]]:
    while group and group[-1].path is None:
        group = group[:-1]
    if _count(group) > 1:
        yield group


def _problem(target: str, group: Sequence[ArchivedFile]) -> str | None:
    """Why files cannot be merged; None if they can."""
    schema = None
    for file in group:
        if file.path is None:
            continue
        try:
            with pa.parquet.ParquetFile(f"{target}/{file.path}") as opened:
                rows, here = opened.metadata.num_rows, opened.schema_arrow
        except Exception as error:
            # pyarrow raises half a dozen types for what is no file of Parquet.
            return f"{file.path} cannot be read: {error}"
        if rows != file.rows:
            return f"{file.path} has {rows:,} rows instead of {file.rows:,}"
        if schema is not None and not schema.equals(here):
            return f"{file.path} has other columns than the files before it"
        schema = here
    return None


def _merge(target: str, group: Sequence[ArchivedFile]) -> int:
    """Merge files that adjoin; returns the size of the new one."""
    parts = [file for file in group if file.path is not None]
    first, last = group[0], group[-1]
    assert first.path is not None
    path = file_path(first.queue, first.queue_id, date_of(first.path), first.first, last.next)
    hidden = f"{os.path.dirname(path)}/.{first.first:020}-{last.next:020}.making"
    plan = {"path": path, "hidden": hidden, "parts": [file.path for file in parts]}
    try:
        replace_text(_plan_path(target), json.dumps(plan))
        size = _write(target, parts, f"{target}/{hidden}", f"{target}/{path}", range(first.first, last.next))
        merged = ArchivedFile(
            *(path, first.queue, first.queue_id, first.first, last.next),
            *(sum(file.rows for file in group), sum(file.gone for file in group), sum(file.gaps for file in group)),
            size,
            *(
                _of_all(min, [file.arrived_least for file in parts]),
                _of_all(max, [file.arrived_most for file in parts]),
            ),
            last.at,
        )
        replaced = {file.path for file in parts}
        write_compacted(target, [*(file for file in compacted_files(target) if file.path not in replaced), merged])
    except OSError as error:
        if not is_full(error):
            raise
        _end_interrupted(target)
        raise no_space_to_merge(f"{target}/{os.path.dirname(path)}", sum(file.bytes for file in parts)) from error
    _end_interrupted(target)
    return size


def _of_all(choose: Callable[[list[datetime]], datetime], times: Sequence[datetime | None]) -> datetime | None:
    """One of these times; None if not all are known."""
    known = [time for time in times if time is not None]
    return choose(known) if len(known) == len(times) else None


def _write(target: str, parts: Sequence[ArchivedFile], hidden: str, path: str, numbers: range) -> int:
    """Write the rows of the parts into one file, and check that their numbers ascend within the range."""
    made: HiddenFile | None = None
    before = numbers.start - 1
    rows = sum(file.rows for file in parts)
    try:
        for part in parts:
            with pa.parquet.ParquetFile(f"{target}/{part.path}") as opened:
                compression = opened.metadata.row_group(0).column(0).compression.lower()
                for batch in opened.iter_batches(BATCH_ROWS):
                    before = _checked(part, batch, before, numbers.stop)
                    made = made or HiddenFile(
                        hidden, batch, "none" if compression == "uncompressed" else compression, rows
                    )
                    made.add(batch)
        assert made is not None
        return made.publish(path)
    except BaseException:
        if made is not None:
            made.give_up()
        raise


def _checked(part: ArchivedFile, batch: Any, before: int, stop: int) -> int:
    """The last number of a batch. Raises SparkSourceError E4 if its numbers do not ascend from the one before."""
    numbers = batch.column("seq").to_numpy()
    if len(numbers) and not (numbers[0] > before and numbers[-1] < stop and (numbers[1:] > numbers[:-1]).all()):
        raise wrong_options(f"{part.path}: its numbers do not ascend. Nothing was removed; check it by verify_archive")
    return int(numbers[-1]) if len(numbers) else before


def _plan_path(target: str) -> str:
    return f"{target}/{OWN}/compaction.json"


def _end_interrupted(target: str) -> None:
    """Remove what a merge has left: its parts if the new file is noted, and otherwise the new file."""
    plan_path = Path(_plan_path(target))
    if not plan_path.exists():
        return
    plan = json.loads(plan_path.read_text("utf-8"))
    is_noted = plan["path"] in {file.path for file in compacted_files(target)}
    leftovers = [plan["hidden"], *(plan["parts"] if is_noted else [])]
    if not is_noted and plan["path"] not in {file.path for file in committed_files(target)}:
        leftovers.append(plan["path"])
    for path in leftovers:
        Path(target, path).unlink(missing_ok=True)
    plan_path.unlink()
