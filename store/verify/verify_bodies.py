"""The offline check of a message store: its files, which of their records the queues refer to, and the location index.

What the next start does (`store_recovery`) depends on how the store was left. Where it trusts the index, a message is
where the index says, and the other records of the files are garbage. It scans the files that the index does not cover,
or all files if it does not trust the index. A message that queues refer to and that neither way finds is **missing**.

Missing bodies are normal only after an unclean end. An index entry may reach the disk before its body does, but its
message was not confirmed then (C-3); or an acknowledgement did not reach the disk before the body was deleted (C-10).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import lmdb

from ..bodies.location_index import BodyLocation, Checkpoint, LocationIndex, Saved
from ..bodies.rdq_file import FoundRecord, aside_number, file_name, file_number
from ..bodies.store_recovery import STATE, StoreState, read_state
from ..bodies.walk_records import DamagedBytes, walk_records
from ..disk.disk import Disk
from ..disk.read_only_disk import file_size
from .verify_environment import is_sound
from .verify_references import References
from .verify_report import DataFileReport, Findings

#: What else is in the directory of a store. Earlier versions had the lock file.
_OTHERS = {STATE, "index", "index.lock"}
#: An offset behind every file: no scan starts there, because the index covers the whole file.
NEVER = 1 << 62


@dataclass
class StorePaths:
    """Where a message store is.

    directory     below the virtual host's directory
    index_path    the location index, as a path of the operating system
    index_place   the same, below the virtual host's directory
    index_shown   the same, as findings show it to people
    """

    directory: str
    index_path: str
    index_place: str
    index_shown: str


@dataclass
class StoreFound:
    """What is in a message store.

    is_clean   it was closed cleanly
    is_whole   no file is missing and no record is damaged, so a missing body was never written
    """

    files: list[DataFileReport]
    is_clean: bool
    is_whole: bool = True


def was_closed_cleanly(disk: Disk, directory: str) -> bool | None:
    """Whether the store was closed cleanly; None if it has no state, or an unreadable one."""
    state = read_state(disk, directory)
    return None if state is None else state.is_clean


def check_bodies(
    disk: Disk,
    paths: StorePaths,
    boot_id: str,
    is_clean: bool,
    references: References,
    findings: Findings,
    advance: Callable[[int], None],
) -> StoreFound:
    """Check all files of a message store.

    `is_clean`: the queues were stopped cleanly. `references` has everything that they refer to, and notes which of it
    has a body.
    """
    return _Check(disk, paths, boot_id, is_clean, references, findings, advance).run()


class _Check:
    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        boot_id: str,
        is_clean: bool,
        references: References,
        findings: Findings,
        advance: Callable[[int], None],
    ) -> None:
        self._disk = disk
        self._paths = paths
        self._boot_id = boot_id
        self._is_clean = is_clean
        self._references = references
        self._findings = findings
        self._advance = advance
        self._sizes: dict[int, int] = {}
        self._has_asides = False
        self._index: LocationIndex | None = None
        self._saved = Saved(None, Checkpoint(0, 0), [], {})
        self._interrupted: set[int] = set()
        self._is_trusted = False
        #: Entries of the index, counted file by file.
        self._located = 0
        self._valid: dict[int, int] = {}
        self._found = StoreFound([], False)

    def run(self) -> StoreFound:
        self._list()
        state = self._read_state()
        self._found.is_clean = state is not None and state.is_clean
        try:
            if state is not None:
                self._open_index(state)
            for number in sorted(self._sizes):
                self._check_file(number)
            if self._index is not None:
                self._check_index(self._index)
        finally:
            if self._index is not None:
                self._index.close()
        return self._found

    # -- files and state ---

    def _list(self) -> None:
        for name in self._disk.list(self._paths.directory):
            place = f"{self._paths.directory}/{name}"
            number = file_number(name)
            if number is not None:
                self._sizes[number] = file_size(self._disk, place)
            elif aside_number(name) is not None:
                self._has_asides = True
                self._findings.note(
                    place,
                    "the copy that combines two files, which a crash interrupted",
                    "it is deleted; the files that it was made from are still there",
                )
            elif name == f"{STATE}.new":
                self._findings.note(place, "a crash came before it was renamed", "it is overwritten")
            elif name not in _OTHERS:
                self._findings.warn(place, "it is no file of a message store", "it is left alone")

    def _read_state(self) -> StoreState | None:
        place = f"{self._paths.directory}/{STATE}"
        state = read_state(self._disk, self._paths.directory)
        if state is None and self._disk.exists(place):
            self._findings.warn(
                place, "it is damaged", "warren scans all files and counts references again; no message is lost"
            )
        elif state is None and (self._sizes or self._references.referred):
            self._findings.warn(
                place, "it is missing", "warren scans all files and counts references again; no message is lost"
            )
        return state

    def _open_index(self, state: StoreState) -> None:
        """Open the index if the next start will trust it."""
        place, path = self._paths.index_place, self._paths.index_path
        anew = "warren scans all files and builds the index again; no message is lost"
        if not os.path.isdir(path):
            add = self._findings.warn if state.is_clean else self._findings.note
            add(place, "it is missing", anew)
            return
        may_believe = state.is_clean or state.boot_id == self._boot_id
        if not may_believe:
            self._findings.note(
                place,
                "the machine was restarted after the store had ended uncleanly, so the index may be damaged",
                anew,
            )
            return
        if not is_sound(path, place, self._findings, anew):
            return
        try:
            index = LocationIndex(path, is_read_only=True)
            try:
                saved = index.saved()
            except BaseException:
                index.close()
                raise
        except Exception as error:
            # LMDB's errors, and whatever msgpack raises for bytes that are not msgpack.
            self._findings.error(place, f"it cannot be read: {error}", anew)
            return
        if saved.generation != state.generation:
            index.close()
            add = self._findings.warn if state.is_clean else self._findings.note
            add(place, "it is not the one that the store was left with", anew)
            return
        self._index, self._saved = index, saved
        self._interrupted = {number for files in saved.intents for number in files}
        self._check_rows()
        is_interrupted = bool(saved.intents)
        if is_interrupted:
            files = ", ".join(file_name(number) for files in saved.intents for number in files)
            self._findings.note(
                place,
                f"{files} were about to be combined or deleted",
                "warren scans them and locates their records again",
            )
        self._is_trusted = (
            self._index is not None
            and state.is_clean
            and self._is_clean
            and not self._has_asides
            and not is_interrupted
            and self._sizes.keys() <= saved.rows.keys()
        )

    def _check_rows(self) -> None:
        """Compare sizes: a missing or short file makes the next start scan all files."""
        for number, (_, size) in sorted(self._saved.rows.items()):
            here = self._sizes.get(number, 0)
            if number in self._interrupted or here >= size:
                continue  # also a row of size 0 without a file: the first record makes the file
            what = f"it has {here:,} bytes" if number in self._sizes else "it is missing"
            self._findings.error(
                f"{self._paths.directory}/{file_name(number)}",
                f"{what}, and in the index of the store it has {size:,}",
                "warren scans all files; messages that were in the missing bytes are dropped. "
                "Restore the file from a backup if there is one",
            )
            self._found.is_whole = False
            if self._index is not None:
                self._index.close()
                self._index = None

    # -- a file ---

    def _scanned_from(self, number: int) -> int:
        """The offset from which the next start scans the file for messages without a location."""
        checkpoint = self._saved.checkpoint
        if (
            self._index is None
            or number in self._interrupted
            or number not in self._saved.rows
            or number > checkpoint.file
        ):
            return 0
        if self._is_trusted or number < checkpoint.file:
            return NEVER
        return checkpoint.offset

    def _check_file(self, number: int) -> None:
        place = f"{self._paths.directory}/{file_name(number)}"
        report = DataFileReport(file_name(number), self._sizes[number])
        self._found.files.append(report)
        located: dict[int, tuple[bytes, BodyLocation]] = {}
        if self._index is not None and number not in self._interrupted:
            located = {entry.offset: (message_id, entry) for message_id, entry in self._index.located_in(number)}
        self._located += len(located)
        self._valid[number] = sum(entry.total_size for _, entry in located.values() if entry.ref_count)
        scanned_from = self._scanned_from(number)
        try:
            file = self._disk.open(place)
            try:
                damages = []
                for part in walk_records(file):
                    if isinstance(part, DamagedBytes):
                        self._advance(part.size)
                        report.damaged += part.size
                        damages.append(part)
                        continue
                    self._advance(part.total_size)
                    is_located = self._is_located(located.pop(part.offset, None), part)
                    if (is_located or part.offset >= scanned_from) and self._references.find(part.message_id):
                        report.live += part.total_size
            finally:
                file.close()
        except OSError as error:
            self._findings.unreadable(place, error)
            self._found.is_whole = False
            return
        for damage in damages:
            self._report_damage(place, damage, located)
        self._report_astray(place, located)

    @staticmethod
    def _is_located(located: tuple[bytes, BodyLocation] | None, record: FoundRecord) -> bool:
        return located is not None and located[0] == record.message_id and located[1].total_size == record.total_size

    def _report_damage(self, place: str, damage: DamagedBytes, located: dict[int, tuple[bytes, BodyLocation]]) -> None:
        """Report damage; `located` has the locations at which there is no whole record."""
        within = [located.pop(offset)[0] for offset in sorted(located) if damage.offset <= offset < damage.end]
        is_torn = damage.is_tail and damage.is_torn and not within and not self._is_trusted
        wanted = (
            []
            if is_torn
            else [message_id for message_id in {*within, damage.message_id} if self._references.count(message_id)]
        )
        if wanted:
            shown = ", ".join(message_id.hex() for message_id in sorted(wanted)[:3]) + (
                f" and {len(wanted) - 3} more" if len(wanted) > 3 else ""
            )
            self._findings.error(
                place,
                f"{damage.size:,} damaged bytes, and queues refer to what was in them: message {shown}",
                "it is dropped"
                + (" when it is to be delivered" if self._is_trusted else "")
                + ". Restore the file from a backup if there is one",
                damage.offset,
                damage.size,
            )
            self._found.is_whole = False
        elif is_torn:
            self._findings.note(
                place,
                f"a torn tail of {damage.size:,} bytes",
                "it is cut off or counts as garbage; it has nothing that was confirmed",
                damage.offset,
                damage.size,
            )
        else:
            self._findings.note(
                place,
                f"{damage.size:,} damaged bytes, which no queue is known to refer to",
                "they count as garbage",
                damage.offset,
                damage.size,
            )
            self._found.is_whole = False

    def _report_astray(self, place: str, located: dict[int, tuple[bytes, BodyLocation]]) -> None:
        """Report locations at which there is another record, or the middle of one."""
        astray = [message_id for message_id, _ in located.values() if self._references.count(message_id)]
        if astray:
            self._findings.error(
                place,
                f"{len(astray):,} messages are not where the index locates them, the first being {astray[0].hex()}",
                f"they are dropped. Delete the directory {self._paths.index_shown}, and all files are scanned instead",
            )
            self._found.is_whole = False

    # -- the index ---

    def _check_index(self, index: LocationIndex) -> None:
        place = self._paths.index_place
        delete = f"Delete the directory {self._paths.index_shown}, and warren builds it again from the files"
        entries = elsewhere = too_many = too_few = 0
        try:
            for message_id, entry in index.all_located():
                if entry.file in self._interrupted:
                    continue
                entries += 1
                elsewhere += entry.file not in self._sizes
                wanted = self._references.count(message_id)
                too_many += entry.ref_count > wanted
                too_few += entry.ref_count < wanted
        except lmdb.Error as error:
            self._findings.error(
                place,
                f"it cannot be read: {error}",
                f"warren builds it again from the files if it notices the damage. {delete}",
            )
            return
        if elsewhere:
            self._findings.error(
                place,
                f"{elsewhere:,} messages are located in files that do not exist",
                f"warren fails when it looks for them. {delete}"
                if self._is_trusted
                else "warren builds it again from the files; no message is lost",
            )
        elif entries != self._located:
            self._findings.error(
                place,
                f"it has {entries:,} messages, and in the order of the files {self._located:,}",
                f"some of them are lost when files are combined. {delete}",
            )
        if not self._is_trusted:
            return  # the next start counts references again
        if too_few:
            self._findings.error(
                place,
                f"{too_few:,} messages have fewer references than queues refer to them",
                f"they may be deleted too early. {delete}",
            )
        if too_many:
            self._findings.warn(
                place,
                f"{too_many:,} messages have more references than queues refer to them",
                f"their space is never given back. {delete}",
            )
        wrong = [
            number
            for number in sorted(self._sizes)
            if self._saved.rows[number] != (self._valid[number], self._sizes[number])
        ]
        if wrong:
            valid, size = self._saved.rows[wrong[0]]
            self._findings.warn(
                place,
                f"of {len(wrong):,} files it has wrong sizes; "
                f"of {file_name(wrong[0])} {valid:,} live bytes of {size:,}, "
                f"where there are {self._valid[wrong[0]]:,} of {self._sizes[wrong[0]]:,}",
                f"garbage is collected too early or too late. {delete}",
            )
