"""The offline check of a queue's index segments, united with the journal as in recovery (queue-and-store section 5.5).

Recovery (`segment_scan`) takes the whole frames of each segment. It cuts a torn tail off, and rewrites a file that is
damaged elsewhere without the damage. The journal still has every entry that was not synced, and the next flush writes
these entries again. So a torn tail after a crash loses no message; nor do zeros that a power cut left, if the journal
has everything behind them. After a clean stop none of this is normal.

One segment is in memory at a time, and only the sizes and stubs of its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..deduplication.ids_file import ids_number
from ..disk.disk import Disk
from ..disk.walk_frames import DamagedPart, WholeFrame, walk_frames
from ..index.segment_file import BLOCK, SUFFIX, cut, mark, segment_number
from ..index.segment_salvage import KEPT_SUFFIX, NEW_SUFFIX
from ..journal.replay import Replayed
from ..messages.message import Sizes
from ..messages.records import STUB_SIZE, Kind, decode_runs, decode_spans, stub_id
from ..messages.run import Run
from .verify_report import Findings

CANNOT_RECOVER = (
    "warren cannot recover this queue with it. Restore the file from a backup, or move it away and lose what is in it"
)
_PERSISTENT, _STORED = 1, 2


@dataclass
class IndexFound:
    """What a queue's index has. Bytes are those of bodies.

    segment_messages   un-acked persistent messages in segments, whether their bodies exist or not
    journal_messages   the same in the journal alone
    next_number        the number after the highest one seen
    unacked            by segment: how many entries, transient ones included, are not acked in its file, as in the terms
    """

    segment_messages: int = 0
    segment_bytes: int = 0
    journal_messages: int = 0
    journal_bytes: int = 0
    next_number: int = 0
    unacked: dict[int, int] = field(default_factory=dict)


@dataclass
class QueueIndexFiles:
    """A queue's index. `is_clean`: the queue was stopped cleanly, so that not even a torn tail is normal."""

    disk: Disk
    directory: str
    segment_entries: int
    is_clean: bool


def check_index(
    files: QueueIndexFiles,
    replayed: Replayed | None,
    findings: Findings,
    advance: Callable[[int], None],
    on_stored: Callable[[bytes], None],
) -> IndexFound:
    """Check all segments of a queue.

    `on_stored` receives the id of each un-acked persistent message that has its body in the message store. Entries of
    the segments are removed from `replayed`, as in recovery; a second check may be given the same object.
    """
    replayed = replayed or Replayed()
    found = IndexFound(next_number=replayed.next_number)
    numbers = _segment_numbers(files, findings)
    for number in sorted(replayed.sizes.keys() - set(numbers)):
        findings.error(
            f"{files.directory}/{number}{SUFFIX}",
            f"it is missing, and had {replayed.sizes[number]:,} bytes when it was synced last",
            _SHORTENED,
        )
    for number in numbers:
        segment = _Segment(files, number, replayed, findings)
        try:
            segment.read(advance)
        except OSError as error:
            findings.unreadable(segment.place, error)
        segment.unite(found, on_stored)
    found.journal_messages = replayed.embedded.count + replayed.stored.count
    found.journal_bytes = replayed.embedded.body_bytes + replayed.stored.body_bytes
    for run, index in replayed.stored.slots():
        on_stored(stub_id(run.contents[index]))
    return found


def _segment_numbers(files: QueueIndexFiles, findings: Findings) -> list[int]:
    numbers = []
    for name in files.disk.list(files.directory):
        number = segment_number(name)
        if number is not None:
            numbers.append(number)
        elif name.endswith(NEW_SUFFIX):
            findings.note(
                f"{files.directory}/{name}",
                "the copy of a damaged segment, which a crash interrupted",
                "it is deleted when the queue is next scanned",
            )
        elif name.endswith(KEPT_SUFFIX):
            findings.note(
                f"{files.directory}/{name}",
                "a damaged segment as it was before warren replaced it by a file with its whole frames only",
                "it is left alone. Delete it when you have looked at it",
            )
        elif ids_number(name) is None:
            findings.warn(f"{files.directory}/{name}", "it is no index segment", "it is left alone")
    return sorted(numbers)


_SHORTENED = (
    "The messages in the missing bytes are lost unless the journal still has them, and messages acknowledged there may "
    "come back. Restore the file from a backup if there is one"
)


class _Behind(NamedTuple):
    """The content of a whole frame behind damage; `published` are the persistent messages, which survive a restart."""

    published: list[range]
    acked: list[range]
    runs: list[tuple[Run, bool]]


class _Segment:
    """One segment in memory. The state of a number is a byte in each array, at number - base."""

    def __init__(self, files: QueueIndexFiles, number: int, replayed: Replayed, findings: Findings) -> None:
        self.place = f"{files.directory}/{number}.idx"
        self._files = files
        self._number = number
        self._base = number * files.segment_entries
        self._replayed = replayed
        self._findings = findings
        self._here = bytearray(files.segment_entries)
        self._kinds = bytearray(files.segment_entries)
        self._acked = bytearray(files.segment_entries)
        self._sizes = [0] * files.segment_entries
        self._stubs: dict[int, bytes] = {}
        self._published: list[range] = []
        self._behind: list[_Behind] = []
        self._frames_behind = 0

    # -- the file ---

    def read(self, advance: Callable[[int], None]) -> None:
        damages = []
        end = 0
        least = self._replayed.sizes.get(self._number, 0)
        file = self._files.disk.open(self.place)
        try:
            if not file.size() and not least:
                self._findings.note(
                    self.place,
                    "it is empty: a crash came before its first block was written",
                    "it is deleted. Nothing is missing: the journal has what it was made for",
                )
            for part in walk_frames(file):
                advance(part.end - part.offset)
                if isinstance(part, DamagedPart):
                    damages.append(part)
                else:
                    end = part.end
                    self._frame(part)
        finally:
            file.close()
        if end < least:
            self._findings.error(
                self.place,
                f"it has {end:,} bytes of whole frames, and had {least:,} bytes when it was synced last",
                _SHORTENED,
            )
        if damages:
            self._report_damage(damages)
            for behind in self._behind:
                for run, is_stored in behind.runs:
                    self._take_in(run, is_stored)
                    self._published.append(range(run.first, run.end))
                mark(self._acked, behind.acked, self._base)
        else:
            self._report_unknown_acks()

    def _frame(self, part: WholeFrame) -> None:
        try:
            runs, acked = (self._entries(part), []) if part.kind == Kind.ENTRIES else ([], self._acks(part))
        except Exception as error:
            # A decoder may raise anything for bytes that warren never wrote.
            self._findings.error(
                self.place, f"a whole frame that cannot be understood: {error}", CANNOT_RECOVER, part.offset
            )
            return
        if part.is_behind:
            self._frames_behind += 1
            self._behind.append(
                _Behind([range(run.first, run.end) for run, _ in runs if run.origin.persistent], acked, runs)
            )
            return
        for run, is_stored in runs:
            self._take_in(run, is_stored)
            self._published.append(range(run.first, run.end))
        mark(self._acked, acked, self._base)

    def _acks(self, part: WholeFrame) -> list[range]:
        if part.kind != Kind.ACKS:
            raise ValueError(f"frames of kind {part.kind} do not belong here")
        return decode_spans(part.payload)

    def _entries(self, part: WholeFrame) -> list[tuple[Run, bool]]:
        first, last, count = BLOCK.unpack_from(part.payload)
        runs = list(decode_runs(part.payload[BLOCK.size :]))
        spans = [range(run.first, run.end) for run, _ in runs]
        actual = (min(span.start for span in spans), max(span[-1] for span in spans), sum(map(len, spans)))
        if (first, last, count) != actual:
            self._findings.error(
                self.place,
                f"the head of a block states {count:,} messages, {first} to {last}, "
                f"and the block has {actual[2]:,}, {actual[0]} to {actual[1]}",
                "reads of some of its messages do not find them. Restore the file from a backup",
                part.offset,
            )
        limit = self._base + self._files.segment_entries
        if actual[0] < self._base or actual[1] >= limit:
            self._findings.error(
                self.place,
                f"messages {actual[0]} to {actual[1]} do not belong into this segment, "
                f"which is for {self._base} to {limit - 1}",
                CANNOT_RECOVER,
                part.offset,
            )
        for run, is_stored in runs:
            if is_stored and any(len(stub) != STUB_SIZE for stub in run.contents):
                raise ValueError("a body in the message store is named by something that is no stub")
        return runs

    def _take_in(self, run: Run, is_stored: bool) -> None:
        """Note the messages of a run. If a number is in two blocks, the first counts (C-12).

        A crash between a flush and the journal's retirement repeats entries.
        """
        inside = cut(range(run.first, run.end), self._base, self._base + self._files.segment_entries)
        if not inside:
            return
        low, high = inside.start - self._base, inside.stop - self._base
        shift = inside.start - run.first
        sizes = run.measured()
        kind = (_PERSISTENT if run.origin.persistent else 0) | (_STORED if is_stored else 0)
        if not self._here.count(1, low, high):
            self._sizes[low:high] = _spread(sizes, shift, len(inside))
            self._kinds[low:high] = bytes([kind]) * len(inside)
            fresh: Iterable[int] = range(low, high)
        else:
            fresh = [at for at in range(low, high) if not self._here[at]]
            for at in fresh:
                self._sizes[at] = sizes if isinstance(sizes, int) else sizes[at - low + shift]
                self._kinds[at] = kind
        if kind == _PERSISTENT | _STORED:
            self._stubs.update((at, run.contents[at - low + shift]) for at in fresh)
        self._here[low:high] = b"\1" * len(inside)

    # -- together with the journal ---

    def unite(self, found: IndexFound, on_stored: Callable[[bytes], None]) -> None:
        found.unacked[self._number] = sum(here > acked for here, acked in zip(self._here, self._acked, strict=True))
        mark(self._acked, self._replayed.acked, self._base)
        for span in self._published:
            self._replayed.embedded.discard(span)
            self._replayed.stored.discard(span)
        highest = self._here.rfind(1)
        found.next_number = max(found.next_number, self._base + highest + 1 if highest >= 0 else 0)
        for at, kind in enumerate(self._kinds):
            if kind & _PERSISTENT and not self._acked[at]:
                found.segment_messages += 1
                found.segment_bytes += self._sizes[at]
                if kind & _STORED:
                    on_stored(stub_id(self._stubs[at]))

    # -- findings ---

    def _report_unknown_acks(self) -> None:
        unknown = sum(acked > here for here, acked in zip(self._here, self._acked, strict=True))
        if unknown:
            self._findings.warn(
                self.place, f"{unknown:,} acknowledgements of messages that it does not have", "warren ignores them"
            )

    def _report_damage(self, damages: list[DamagedPart]) -> None:
        first = damages[0]
        lost, back = self._lost(), self._back()
        if not self._files.is_clean and first.is_torn_tail:
            what = "zeros" if first.is_zero else "a frame that was not written to its end"
            self._findings.note(
                self.place,
                f"a torn tail of {first.size:,} bytes: {what}",
                "it is cut off; the journal still has every confirmed message that belongs there",
                first.offset,
                first.size,
            )
        elif (
            not self._files.is_clean
            and all(part.is_zero or part.is_torn_tail for part in damages)
            and not lost
            and not back
        ):
            self._findings.note(
                self.place,
                f"{first.size:,} bytes of zeros, and {self._frames_behind:,} whole frames behind them, "
                "as a power cut leaves them",
                "warren rewrites the file without them; the journal still has everything behind them, "
                "so it has the entries that belong there as well",
                first.offset,
                first.size,
            )
        elif not self._files.is_clean and first.is_tail:
            self._findings.warn(
                self.place,
                f"the last {first.size:,} bytes are a frame with a wrong checksum",
                "warren rewrites the file without them. Harmless if the power failed while they were written, because "
                "the journal then has their entries; otherwise they were damaged later, "
                f"and up to 512 messages, or acknowledgements, are lost. {self._kept()}",
                first.offset,
                first.size,
            )
        else:
            more = f" and {len(damages) - 1} further places" if len(damages) > 1 else ""
            what = (
                f"; behind it {self._frames_behind:,} whole frames with {lost:,} messages "
                f"and {back:,} acknowledgements that the journal does not have"
                if self._frames_behind
                else ""
            )
            unless = "" if self._files.is_clean else " unless the journal has them"
            self._findings.error(
                self.place,
                f"{first.size:,} damaged bytes{more}{what}",
                "when the file is next read, warren rewrites it with its whole frames only. "
                f"Messages that stood there are lost{unless}, and messages acknowledged there come back. "
                f"{self._kept()} Restore it from a backup if there is one",
                first.offset,
                first.size,
            )

    def _kept(self) -> str:
        return f"The file as it is now is kept as {self._number}{KEPT_SUFFIX}."

    def _lost(self) -> int:
        """How many un-acked messages behind the damage are neither in the journal nor before the damage.

        If there are any, the journal no longer has what the damaged bytes had either.
        """
        gone = self._acked[:]
        mark(gone, self._replayed.acked, self._base)
        for behind in self._behind:
            mark(gone, behind.acked, self._base)
        lost = 0
        for span in (span for behind in self._behind for span in behind.published):
            for number in cut(span, self._base, self._base + len(gone)):
                at = number - self._base
                if not gone[at] and not self._here[at] and not self._is_journaled(number):
                    gone[at] = 1
                    lost += 1
        return lost

    def _is_journaled(self, number: int) -> bool:
        span = range(number, number + 1)
        return bool(self._replayed.embedded.count_in(span) or self._replayed.stored.count_in(span))

    def _back(self) -> int:
        """How many messages before the damage have their ack behind it and not in the journal."""
        gone = bytearray(self._files.segment_entries)
        for behind in self._behind:
            mark(gone, behind.acked, self._base)
        known = self._acked[:]
        mark(known, self._replayed.acked, self._base)
        return sum(acked and here and not before for acked, here, before in zip(gone, self._here, known, strict=True))


def _spread(sizes: Sizes, start: int, count: int) -> list[int]:
    return [sizes] * count if isinstance(sizes, int) else list(sizes[start : start + count])
