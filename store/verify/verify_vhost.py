"""The offline check of a virtual host's directory: its parts one by one, and then against each other.

The order is that of recovery: how it was stopped, the journal, the index of each queue, the message store. How it was
stopped decides what is normal. Queues that have recovery terms were stopped cleanly, because a stop writes the terms
last and a start clears them first (queue-and-store section 10.1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..data_dir.data_dir import vhost_id
from ..data_dir.recovery_terms import read_terms
from ..data_dir.vhost_dir import (
    INDEX,
    JOURNAL,
    LEVEL_BITS,
    PERSISTENT,
    QUEUES,
    RECOVERY,
    TRANSIENT,
    directory_number,
    queue_directory,
)
from ..disk.disk import TOMBSTONE, Disk
from ..disk.read_only_disk import file_size
from ..index.queue_index import SEGMENT_ENTRIES
from .verify_bodies import StorePaths, check_bodies, was_closed_cleanly
from .verify_environment import is_sound
from .verify_ids import check_ids
from .verify_journal import JournalFound, check_journal
from .verify_references import References
from .verify_report import Findings, QueueReport, VhostReport
from .verify_segments import IndexFound, QueueIndexFiles, check_index

PARTS = {"config", "name", "name.new", JOURNAL, QUEUES, RECOVERY, PERSISTENT, TRANSIENT, INDEX}
_MESSAGES = PARTS - {"name", "name.new", "config", INDEX}
_COUNTS = ("persistent_count", "persistent_bytes", "segments", "next_seq_id")


@dataclass
class VhostPlace:
    """A virtual host's directory.

    disk     the directory
    path     the same, as a path of the operating system
    shown    the same, as findings show it to people
    queues   names of the durable queues, by number
    """

    disk: Disk
    path: str
    shown: str
    name: str
    queues: Mapping[int, str]
    boot_id: str


def check_vhost(place: VhostPlace, findings: Findings, advance: Callable[[int], None]) -> VhostReport:
    """Check everything in the directory."""
    return _VhostCheck(place, findings, advance).check()


class _VhostCheck:
    def __init__(self, place: VhostPlace, findings: Findings, advance: Callable[[int], None]) -> None:
        self._place = place
        self._disk = place.disk
        self._findings = findings
        self._advance = advance
        self._report = VhostReport(place.name, place.shown)
        self._names = set(place.disk.list(""))
        self._entries = SEGMENT_ENTRIES
        self._terms: dict[int, dict[str, Any]] = {}
        self._journal = JournalFound()
        self._numbers: list[int] = []
        self._queues: dict[int, QueueReport] = {}
        self._found: dict[int, IndexFound] = {}
        self._references = References()
        self._missing: dict[int, int] = {}

    def check(self) -> VhostReport:
        self._check_names()
        if not self._names & _MESSAGES:
            return self._report
        self._entries = self._segment_entries()
        self._terms = self._read_terms()
        self._list_queues()
        is_clean = self._was_stopped_cleanly()
        self._report.stopped = "clean" if is_clean else "unclean"
        self._journal = check_journal(self._disk, JOURNAL, is_clean, self._findings, self._advance)
        self._report.journal_files, self._report.journal_bytes = self._journal.files, self._journal.total_size
        self._report.in_transit = self._journal.in_transit
        journaled = [
            queue
            for number, replayed in self._journal.replayed.items()
            if not replayed.is_empty and (queue := number >> LEVEL_BITS) in self._place.queues
        ]
        if is_clean and journaled:
            self._findings.warn(
                JOURNAL,
                f"it has messages or acknowledgements of {len(set(journaled))} queues, "
                "although the virtual host was stopped cleanly",
                "all queues count as stopped uncleanly. Was the journal restored from a backup?",
            )
        self._numbers = sorted(
            {
                *self._numbers,
                *(
                    number
                    for number, replayed in self._journal.replayed.items()
                    if replayed.sizes or not replayed.is_empty
                ),
            }
        )
        for number in self._numbers:
            self._check_queue(number, is_clean, self._findings, self._advance, self._references.refer)
        self._check_journal_is_there()
        self._check_bodies(is_clean)
        if is_clean:
            self._check_terms()
        for number, name in self._place.queues.items():
            # A queue that never had a persistent message has no report yet.
            self._queues.setdefault(number, QueueReport(name, f"{number:x}"))
        self._report.queues = sorted(
            self._queues.values(), key=lambda queue: (queue.name is None, queue.name or "", queue.number)
        )
        return self._report

    def _check_names(self) -> None:
        for name in sorted(self._names - PARTS):
            self._findings.warn(name, "it is nothing that warren keeps in a virtual host", "it is left alone")
        if "name" not in self._names:
            self._findings.note("name", "it is missing", "warren rewrites it; it is for people only")
            return
        file = self._disk.open("name")
        try:
            name = file.read(0, file.size()).decode("utf-8", "surrogateescape")
        finally:
            file.close()
        if vhost_id(name) != os.path.basename(self._place.path):
            self._findings.warn(
                "name",
                f"it names {name!r}, to which another directory belongs",
                "it is left alone; it is for people only",
            )

    def _segment_entries(self) -> int:
        place = "config"
        consequence = (
            "messages of all segments are misread unless the setting is the same; "
            f"they are checked here as segments of {SEGMENT_ENTRIES:,}"
        )
        if "config" not in self._names:
            self._findings.error(
                place,
                "it is missing; it holds the number of messages in a segment",
                f"{consequence}. Restore it from a backup",
            )
            return SEGMENT_ENTRIES
        file = self._disk.open(place)
        try:
            data = file.read(0, 3)
        finally:
            file.close()
        entries = int.from_bytes(data[:2], "big")
        if len(data) == 2 and 1 <= entries <= SEGMENT_ENTRIES:
            return entries
        self._findings.error(
            place,
            f"it should be two bytes, a number from 1 to {SEGMENT_ENTRIES}, and is {data.hex() or 'empty'}",
            f"{consequence}. Restore it from a backup",
        )
        return SEGMENT_ENTRIES

    def _read_terms(self) -> dict[int, dict[str, Any]]:
        path = f"{self._place.path}/{RECOVERY}"
        outcome = "warren deletes it: the stop counts as unclean, and no message is lost"
        if not os.path.isdir(path) or not is_sound(path, RECOVERY, self._findings, outcome):
            return {}
        try:
            terms = read_terms(path)
            if not all(isinstance(values, dict) for values in terms.values()):
                raise ValueError("terms are tables")
        except Exception as error:
            # LMDB's errors, and whatever msgpack raises for bytes that are not msgpack.
            self._findings.error(RECOVERY, f"recovery terms cannot be read: {error}", outcome)
            return {}
        for queue in sorted(terms.keys() - self._place.queues.keys()):
            self._findings.note(
                RECOVERY, f"recovery terms of queue {queue:x}, which is not in the metadata", "warren ignores them"
            )
        return terms

    def _list_queues(self) -> None:
        for name in self._disk.list(QUEUES):
            if name.endswith(TOMBSTONE):
                self._findings.note(
                    f"{QUEUES}/{name}", "a queue whose deletion a crash interrupted", "the deletion is finished"
                )
            elif (number := directory_number(name)) is not None:
                self._numbers.append(number)
            else:
                self._findings.warn(f"{QUEUES}/{name}", "it is no directory of a queue", "it is left alone")

    def _was_stopped_cleanly(self) -> bool:
        """Whether queues and message store were stopped cleanly. Adds a finding if they disagree."""
        here = {number >> LEVEL_BITS for number in self._numbers} & self._place.queues.keys()
        is_store_clean = was_closed_cleanly(self._disk, PERSISTENT)
        without = here - self._terms.keys()
        if not without and self._terms and not is_store_clean:
            self._findings.warn(
                PERSISTENT,
                "it was not closed cleanly, although the queues were",
                "warren counts its references again. Was it restored from a backup?",
            )
            return True
        if without and is_store_clean:
            self._findings.note(
                RECOVERY,
                f"{len(without)} queues have no recovery terms, although the message store was closed cleanly: "
                "a crash came at the very end of the stop",
                "all queues count as stopped uncleanly",
            )
        return not without and bool(is_store_clean)

    # -- queues ---

    def _check_queue(
        self,
        number: int,
        is_clean: bool,
        findings: Findings,
        advance: Callable[[int], None],
        on_stored: Callable[[bytes], None],
    ) -> None:
        queue = number >> LEVEL_BITS
        name = self._place.queues.get(queue)
        directory = queue_directory(number)
        files = QueueIndexFiles(self._disk, directory, self._entries, is_clean)
        found = IndexFound()
        try:
            found = check_index(
                files,
                self._journal.replayed.get(number),
                findings,
                advance,
                on_stored if name is not None else _pass_over,
            )
            check_ids(self._disk, directory, number, is_clean, findings)
        except OSError as error:
            findings.unreadable(directory, error)
        self._found[number] = found
        report = self._queues.setdefault(queue, QueueReport(name, f"{queue:x}"))
        report.segment_messages += found.segment_messages
        report.segment_bytes += found.segment_bytes
        report.journal_messages += found.journal_messages
        report.journal_bytes += found.journal_bytes
        report.segments += len(found.unacked)
        if name is None:
            count = found.segment_messages + found.journal_messages
            add = findings.warn if count else findings.note
            add(
                directory,
                f"queue {queue:x} is not in the metadata, and has {count:,} messages here: "
                "a crash interrupted its deletion, or the metadata are of another time",
                "they are deleted",
            )

    def _check_journal_is_there(self) -> None:
        if not self._journal.files and any(found.segment_messages for found in self._found.values()):
            self._findings.error(
                JOURNAL,
                "there is no file in it, although queues have messages",
                "acknowledgements that only the journal had are lost, so messages may come back, "
                "and those that only it had are gone. Restore it from a backup",
            )
            self._journal.is_whole = False

    # -- bodies ---

    def _check_bodies(self, is_clean: bool) -> None:
        paths = StorePaths(
            PERSISTENT,
            f"{self._place.path}/{PERSISTENT}/index",
            f"{PERSISTENT}/index",
            f"{self._place.shown}/{PERSISTENT}/index",
        )
        store = check_bodies(
            self._disk, paths, self._place.boot_id, is_clean, self._references, self._findings, self._advance
        )
        self._report.files = store.files
        if not self._references.missing:
            return
        # Missing bodies are rare, so their queues are found by a second check instead of a table of all ids.
        for number in self._numbers:
            self._missing[number] = 0

            def look(message_id: bytes, number: int = number) -> None:
                self._missing[number] += not self._references.is_found(message_id)

            again = Findings()
            report = self._queues[number >> LEVEL_BITS]
            files = QueueIndexFiles(self._disk, queue_directory(number), self._entries, is_clean)
            with suppress(OSError):  # the first check has reported it
                check_index(
                    files,
                    self._journal.replayed.get(number),
                    again,
                    lambda size: None,
                    look if report.name is not None else _pass_over,
                )
            if not self._missing[number]:
                continue
            report.missing_bodies += self._missing[number]
            self._report_missing(queue_directory(number), self._missing[number], is_clean, store.is_whole)

    def _report_missing(self, place: str, missing: int, is_clean: bool, is_store_whole: bool) -> None:
        found = f"the bodies of {missing:,} messages are not in the message store"
        if is_clean:
            self._findings.error(
                place,
                f"{found}, although it was stopped cleanly",
                "they are dropped on delivery. Restore the files from a backup if there is one",
            )
        elif not is_store_whole:
            self._findings.error(
                place,
                f"{found}, which is damaged",
                "they are dropped, and some may have been confirmed. Restore the files from a backup if there is one",
            )
        else:
            self._findings.note(
                place,
                f"{found}, as a crash may leave it: they were never confirmed, or were acknowledged just before",
                "they are dropped. If files of the message store were removed since, restore them first",
            )

    # -- the terms of a clean stop ---

    def _check_terms(self) -> None:
        for queue, name in self._place.queues.items():
            terms = self._terms.get(queue)
            if terms is None:
                continue
            levels = (
                {queue << LEVEL_BITS | int(priority): level for priority, level in terms["levels"].items()}
                if "levels" in terms
                else {queue << LEVEL_BITS: terms}
            )
            for number, level in levels.items():
                self._check_level(name, number, level, self._found.get(number, IndexFound()))
            for number in self._numbers:
                # The directory may have only the digests of messages.
                has_segments = bool(self._found.get(number, IndexFound()).unacked)
                if number >> LEVEL_BITS == queue and number not in levels and has_segments:
                    self._findings.error(
                        queue_directory(number),
                        f"it is missing from the recovery terms of queue '{name}'",
                        "warren ignores the messages in it",
                    )

    def _check_level(self, name: str, number: int, terms: dict[str, Any], found: IndexFound) -> None:
        place = queue_directory(number)
        if any(key not in terms for key in _COUNTS):
            self._findings.error(
                RECOVERY,
                f"recovery terms of queue '{name}' lack some of {', '.join(_COUNTS)}",
                f"warren cannot recover the queue. Delete the directory {self._place.shown}/{RECOVERY}: "
                "the stop then counts as unclean, which loses nothing",
            )
            return
        differences = []
        count, size = found.segment_messages + found.journal_messages, found.segment_bytes + found.journal_bytes
        if terms["persistent_count"] != count:
            differences.append(f"{terms['persistent_count']:,} messages, where there are {count:,}")
        if terms["persistent_bytes"] != size:
            differences.append(f"{terms['persistent_bytes']:,} bytes of bodies, where there are {size:,}")
        if terms["next_seq_id"] < found.next_number:
            differences.append(f"{terms['next_seq_id']:,} as the next number, where {found.next_number:,} is")
        segments = {int(segment): unacked for segment, unacked in terms["segments"].items()}
        wrong = sorted(
            segment
            for segment in segments.keys() | found.unacked.keys()
            if segments.get(segment, 0) != found.unacked.get(segment, 0)
        )
        if wrong:
            shown = ", ".join(f"{segment}.idx" for segment in wrong[:3]) + (" and others" if len(wrong) > 3 else "")
            differences.append(f"wrong counts for segments {shown}")
        if differences:
            self._findings.error(
                place,
                f"the recovery terms of queue '{name}' have {'; '.join(differences)}",
                "warren trusts these counts and may not find some messages until an unclean restart. "
                f"Delete the directory {self._place.shown}/{RECOVERY}, and warren counts again; "
                "messages that the files do not have are lost",
            )


def _pass_over(message_id: bytes) -> None:
    """Ignore a reference of a queue that the next start deletes."""


def data_bytes(disk: Disk) -> int:
    """Bytes in all files of a virtual host that the check reads: the total of its progress."""
    total = 0
    for directory in (JOURNAL, PERSISTENT, *(f"{QUEUES}/{name}" for name in disk.list(QUEUES))):
        total += sum(
            file_size(disk, f"{directory}/{name}")
            for name in disk.list(directory)
            if name.endswith((".wal", ".idx", ".rdq"))
        )
    return total
