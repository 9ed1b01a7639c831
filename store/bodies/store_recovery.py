"""Recovery of a message store: which parts of its index are trusted, and how the rest is rebuilt (queue-and-store
section 11.4).

The file `state` beside the data files describes how the store was left. It is a frame (see `records`) of msgpack `[is
clean, generation, boot id, clients]`, replaced by rename: a stop writes a clean state as its last step, a start
writes an unclean one as its first change. The generation is also in the index, so an index that does not belong to
the state (restored from elsewhere, or half rebuilt) is noticed (QS-42). There are three cases:

- **Trusted**: the state is clean, its clients are exactly the queues that have recovery terms, and there is neither an
  `.rdt` file nor an intent. Locations and reference counts are used as they are.
- **Recounted**: otherwise, if the state is clean or the machine has not rebooted since. Locations are used, but the
  files of intents, files without a row and the bytes behind the checkpoint are scanned. References are counted again.
- **Rebuilt**: otherwise, or if a file is shorter than its row, or if the index is damaged. All files are scanned, and
  references are counted again.

A recount adds one reference for each time that a queue index names a message. The store deletes nothing before the
recount is complete (QS-43). Then it deletes messages without references, files without messages, and the tail of the
last file behind its last message, where it continues to append (C-19). A crash meanwhile leaves an index without a
generation, so the next start scans.

A scan finds every whole record, behind damage too (`walk_records`). Damaged bytes are garbage, and their messages are
missing. Every page of the index is checked before LMDB opens it (`lmdb_check`), because LMDB would end the process at
a damaged page.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import msgpack  # type: ignore[import-untyped]

from ..disk.damage_log import VERIFY, log, log_damaged, log_foreign
from ..disk.disk import Disk
from ..disk.lmdb_check import check_file
from ..disk.progress import NO_PROGRESS, RecoveryProgress
from ..messages.records import Damaged, frame, read_frame
from .location_index import COMMIT_LEAST, Checkpoint, LocationIndex, Saved
from .rdq_file import ASIDE_SUFFIX, SUFFIX, FoundRecord, aside_number, file_name, file_number
from .walk_records import DamagedBytes, walk_records

STATE = "state"
_STATE_FRAME = 0x53
_Item = TypeVar("_Item")
_NOTHING_SAVED = Saved(None, Checkpoint(0, 0), [], {})
_REBUILT = f"It is rebuilt from the data files. No message is lost by that. {VERIFY}"
#: Returns, in parts of any size, the ids of all messages that queue indexes locate in the store, once for each
#: occurrence.
References = Callable[[], Iterable[Sequence[bytes]]]


class _WrongIndex(Exception):
    """The index contradicts the data files."""


class StoreState(NamedTuple):
    """The content of the file `state`."""

    is_clean: bool
    generation: int
    boot_id: str
    clients: list[str]


class RecoveredStore(NamedTuple):
    """The result of `recover`. `rows` are (valid total size, file size) by file number."""

    locations: LocationIndex
    rows: dict[int, tuple[int, int]]
    generation: int
    #: Whether locations and reference counts are those of a clean stop.
    is_trusted: bool


def read_state(disk: Disk, directory: str) -> StoreState | None:
    """The state; None if the file is missing or damaged."""
    try:
        file = disk.open(f"{directory}/{STATE}")
    except FileNotFoundError:
        return None
    try:
        kind, payload, _ = read_frame(file, 0)
    except Damaged:
        return None
    finally:
        file.close()
    return StoreState(*msgpack.unpackb(payload)) if kind == _STATE_FRAME else None


def write_state(disk: Disk, directory: str, state: StoreState) -> None:
    """Replace the state. It is on disk when this returns."""
    payload = msgpack.packb(tuple(state))
    new = f"{directory}/{STATE}.new"
    file = disk.open(new, create=True)
    file.truncate(0)
    file.append([frame(_STATE_FRAME, payload), payload])
    file.sync()
    file.close()
    disk.sync_dir(directory)
    disk.rename(new, f"{directory}/{STATE}")
    disk.sync_dir(directory)


def erase(disk: Disk, directory: str, index_path: str) -> None:
    """Delete a store whose content does not outlive the node."""
    for name in disk.list(directory):
        if file_number(name) is not None or aside_number(name) is not None or name in (STATE, f"{STATE}.new"):
            disk.delete(f"{directory}/{name}")
    shutil.rmtree(index_path, ignore_errors=True)


def recover(
    disk: Disk,
    directory: str,
    index_path: str,
    boot_id: str,
    clients: Collection[str] | None,
    references: References,
    progress: RecoveryProgress = NO_PROGRESS,
) -> RecoveredStore:
    """See the module. Waits for the disk.

    clients     the queues with recovery terms; None if the index must not be trusted, because a queue ended uncleanly
                or a deleted queue left files or terms
    references  see `References`
    progress    is notified of files that are scanned
    """
    names = disk.list(directory)
    sizes = {number: _size(disk, f"{directory}/{name}") for name in names if (number := file_number(name)) is not None}
    asides = [name for name in names if aside_number(name) is not None]
    log_foreign(
        disk,
        directory,
        (
            name
            for name in names
            if name.endswith((SUFFIX, ASIDE_SUFFIX)) and file_number(name) is None and aside_number(name) is None
        ),
        "a file of a message store",
    )
    state = read_state(disk, directory)
    generation = state.generation + 1 if state else 1
    index, saved = _believable(state, boot_id, index_path, sizes)
    is_trusted = (
        index is not None
        and state is not None
        and state.is_clean
        and clients is not None
        and set(clients) == set(state.clients)
        and not asides
        and not saved.intents
        and sizes.keys() <= saved.rows.keys()
    )
    try:
        # From here on, a crash leaves an unclean state.
        write_state(disk, directory, StoreState(False, generation, boot_id, []))
        if is_trusted and index is not None:
            index.set_generation(generation)
            return RecoveredStore(index, saved.rows, generation, True)
        for name in asides:
            disk.delete(f"{directory}/{name}")
        if index is not None:
            try:
                rows = _mend(disk, directory, index, saved, sizes, references, progress)
            except _WrongIndex as error:
                log.warning("%s is damaged: %s. %s", index_path, error, _REBUILT)
                index.close()
                index = None
        if index is None:
            shutil.rmtree(index_path, ignore_errors=True)
            index = _opened(index_path)
            rows = _mend(disk, directory, index, _NOTHING_SAVED, sizes, references, progress)
        index.set_generation(generation)
        return RecoveredStore(index, rows, generation, False)
    except BaseException:
        # The next start may be in this very process, which can open an LMDB environment only once.
        if index is not None:
            index.close()
        raise


def _mend(
    disk: Disk,
    directory: str,
    index: LocationIndex,
    saved: Saved,
    sizes: dict[int, int],
    references: References,
    progress: RecoveryProgress,
) -> dict[int, tuple[int, int]]:
    """Scan the files that `saved` does not cover, then recount. Returns the rows of the files that stay."""
    index.set_generation(None)
    interrupted = {number for files in saved.intents for number in files}
    for number in interrupted:
        index.drop_located_in(number)
    wanted = {}  # by file: the offset from which it is scanned
    for number, size in sorted(sizes.items()):
        if number in interrupted or number not in saved.rows or number > saved.checkpoint.file:
            wanted[number] = 0
        elif number == saved.checkpoint.file and size > saved.checkpoint.offset:
            wanted[number] = saved.checkpoint.offset
    progress.begin("message store", sum(sizes[number] - offset for number, offset in wanted.items()))
    for number, offset in wanted.items():
        _locate(disk, directory, number, offset, index)
        progress.advance(sizes[number] - offset)
    disk.sync_dir(directory)
    rows = _recount(disk, directory, index, references, sizes)
    last = max(rows, default=0)
    index.put_rows(rows, Checkpoint(last, rows[last][1] if rows else 0))
    return rows


def _believable(
    state: StoreState | None, boot_id: str, index_path: str, sizes: dict[int, int]
) -> tuple[LocationIndex | None, Saved]:
    """The index, if it has its last commit whole and fits the data files; None otherwise."""
    # After a reboot, commits that were not synced may be damaged without LMDB noticing, so the index is not even
    # opened.
    if state is None or not (state.is_clean or state.boot_id == boot_id):
        return None, _NOTHING_SAVED
    index = None
    try:
        if os.path.exists(f"{index_path}/data.mdb"):
            check_file(f"{index_path}/data.mdb")
        index = _opened(index_path)
        saved = index.saved()
    except Exception as error:
        # The check and LMDB raise errors, and so do msgpack and struct when they decode damaged values.
        log.warning("%s cannot be used: %s. %s", index_path, error, _REBUILT)
        if index is not None:
            index.close()
        return None, _NOTHING_SAVED
    interrupted = {number for files in saved.intents for number in files}
    if saved.generation == state.generation and all(
        number in interrupted or size <= sizes.get(number, 0) for number, (_, size) in saved.rows.items()
    ):
        return index, saved
    index.close()
    return None, _NOTHING_SAVED


def _opened(index_path: str) -> LocationIndex:
    os.makedirs(index_path, exist_ok=True)
    return LocationIndex(index_path)


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    size = file.size()
    file.close()
    return size


def _locate(disk: Disk, directory: str, number: int, offset: int, index: LocationIndex) -> None:
    """Add the records of a file from an offset on to the index."""
    path = f"{directory}/{file_name(number)}"
    parts: list[DamagedBytes] = []
    behind = 0
    file = disk.open(path)

    def whole() -> Iterator[FoundRecord]:
        nonlocal behind
        for part in walk_records(file, offset):
            if isinstance(part, FoundRecord):
                behind += bool(parts)
                yield part
            elif not (part.is_tail and part.is_torn):
                parts.append(part)

    try:
        # A killed process leaves bytes that were never synced. Sync them, because queues rely on them from here on.
        file.sync()
        for chunk in _chunks(whole()):
            index.fill(number, chunk)
    finally:
        file.close()
    if parts:
        log_damaged(
            disk,
            path,
            parts,
            f"{behind:,} whole records, which are kept" if behind else "no whole record",
            "Messages in the damaged bytes are lost, confirmed ones too, if queues still refer to them",
        )


def _chunks(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, COMMIT_LEAST)):
        yield chunk


def _recount(
    disk: Disk, directory: str, index: LocationIndex, references: References, sizes: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """Count references, then delete messages and files without any. Returns the rows of the files that stay."""
    index.forget_references()
    # If all files are empty, no reference leads to a body. Then the segments need not be read for references, which
    # would take a second for a million messages.
    if any(sizes.values()):
        for chunk in _chunks(message_id for ids in references() for message_id in ids):
            index.add_references(chunk)
    valid = dict.fromkeys(sizes, 0)
    ends = dict.fromkeys(sizes, 0)
    for message_id, entry in index.settle():
        if entry.offset + entry.total_size > sizes.get(entry.file, 0):
            raise _WrongIndex(f"message {message_id.hex()} is located outside of every file")
        valid[entry.file] += entry.total_size
        ends[entry.file] = max(ends[entry.file], entry.offset + entry.total_size)
    last = max(sizes, default=0)
    rows = {}
    for number in sorted(sizes):
        if valid[number] or number == last:
            rows[number] = valid[number], sizes[number]
        else:
            disk.delete(f"{directory}/{file_name(number)}")
    if rows:
        file = disk.open(f"{directory}/{file_name(last)}")
        file.truncate(ends[last])
        file.sync()
        file.close()
        rows[last] = valid[last], ends[last]
    disk.sync_dir(directory)
    return rows
