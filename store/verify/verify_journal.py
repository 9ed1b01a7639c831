"""The offline check of a virtual host's journal: every frame of every file, and what recovery will replay from them.

Recovery (`journal.replay`) takes the whole frames of each file and passes over damage; files below the last RETIRE do
not count. A torn tail is normal only at the end of the last file: every other file was synced before the next one was
begun, and a torn tail is cut before the next file is begun. The numbers of the files that count are consecutive, and
begin where the last RETIRE says, or with 1.

The check keeps only the size of each message's body, or its stub if the body is in the message store, so it needs less
memory than recovery will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from ..deduplication.digest_records import decode_digests
from ..disk.disk import Disk
from ..disk.read_only_disk import file_size
from ..disk.walk_frames import DamagedPart, WholeFrame, walk_frames
from ..journal.in_transit import InTransit, decode_handed_over, decode_taken
from ..journal.journal_file import file_name, file_number
from ..journal.replay import Replayed, merge_sizes
from ..messages.lives import Lives, decode_lives
from ..messages.records import (
    STUB_SIZE,
    Kind,
    Record,
    Type,
    decode_returns,
    decode_runs,
    decode_sizes,
    decode_spans,
    make_stub,
    records,
)
from ..messages.run import Run
from .verify_report import Findings

CANNOT_START = "warren cannot start this virtual host with it"


@dataclass
class JournalFound:
    """`replayed` is by queue number. `in_transit` counts dead letters that no queue has. `is_whole`: recovery will find
    all records that were written.
    """

    replayed: dict[int, Replayed] = field(default_factory=dict)
    in_transit: int = 0
    files: int = 0
    total_size: int = 0
    is_whole: bool = True


@dataclass
class _BehindCounts:
    """Counts of the whole frames behind damage, which show how much the damage could have cost."""

    frames: int = 0
    published: int = 0
    acked: int = 0


def check_journal(
    disk: Disk, directory: str, is_clean: bool, findings: Findings, advance: Callable[[int], None]
) -> JournalFound:
    """Check all files of the journal in `directory`. After a clean stop (`is_clean`) not even a torn tail is normal."""
    found = JournalFound()
    sizes: dict[int, int] = {}
    for name in disk.list(directory):
        number = file_number(name)
        if number is None:
            findings.warn(f"{directory}/{name}", "it is no file of the journal", "it is left alone")
            continue
        sizes[number] = file_size(disk, f"{directory}/{name}")
    found.files, found.total_size = len(sizes), sum(sizes.values())
    if not sizes:
        return found
    reader = _Reader(disk, directory, max(sizes), is_clean, advance)
    for number in sorted(sizes):
        reader.read(number)
    stale = [number for number in sizes if number < reader.retired]
    counting = sorted(number for number in sizes if number >= reader.retired)
    if stale:
        # As in recovery, the records of retired files must not count.
        findings.note(
            f"{directory}/{file_name(min(stale))}",
            f"{len(stale)} retired files, which a crash kept from being deleted",
            "they are deleted unread",
        )
        again = _Reader(disk, directory, max(sizes), is_clean, lambda size: None)
        for number in counting:
            again.read(number)
        reader = again
    findings.include(reader.findings)
    # Damage may have cost the RETIRE record of the files before the first.
    first = max(1, reader.retired) if reader.is_whole else min(counting)
    missing = [number for number in range(first, max(sizes)) if number not in sizes]
    if missing:
        findings.error(
            f"{directory}/{file_name(missing[0])}",
            f"{len(missing)} files of the journal are missing, up to {file_name(missing[-1])}",
            "warren goes on without them: messages and acknowledgements in them are lost. "
            "Restore them from a backup if there is one",
        )
    found.replayed = reader.queues
    found.in_transit = len(reader.in_transit)
    found.is_whole = reader.is_whole and not missing
    return found


class _Reader:
    """Replays files in ascending order, with findings of its own: those of retired files are discarded."""

    def __init__(self, disk: Disk, directory: str, last: int, is_clean: bool, advance: Callable[[int], None]) -> None:
        self.queues: dict[int, Replayed] = {}
        self.in_transit = InTransit()
        self.findings = Findings()
        self.retired = 0
        self.is_whole = True
        self._disk = disk
        self._directory = directory
        self._last = last
        self._is_clean = is_clean
        self._advance = advance

    def read(self, number: int) -> None:
        place = f"{self._directory}/{file_name(number)}"
        damage: DamagedPart | None = None
        behind = _BehindCounts()
        others = 0
        try:
            file = self._disk.open(place)
            try:
                for part in walk_frames(file):
                    self._advance(part.end - part.offset)
                    if isinstance(part, DamagedPart):
                        others += damage is not None
                        damage = damage or part
                    else:
                        self._frame(place, part, behind)
            finally:
                file.close()
        except OSError as error:
            self.findings.unreadable(place, error)
            self.is_whole = False
        if damage is not None:
            self._report_damage(place, number == self._last, damage, behind, others)

    def _frame(self, place: str, part: WholeFrame, behind: _BehindCounts) -> None:
        try:
            if part.kind != Kind.RECORDS:
                raise ValueError(f"frames of kind {part.kind} do not belong here")
            entries = list(records(part.payload))
            for entry in entries:
                self._replay(place, part.offset, entry)
                if part.is_behind:
                    _count(entry, behind)
            behind.frames += part.is_behind
        except Exception as error:
            # A decoder may raise anything for bytes that warren never wrote.
            self.findings.error(
                place,
                f"a whole frame that cannot be understood: {error}",
                f"{CANNOT_START}. Restore the file from a backup",
                part.offset,
            )
            self.is_whole = False

    def _report_damage(
        self, place: str, is_last: bool, damage: DamagedPart, behind: _BehindCounts, others: int
    ) -> None:
        self.is_whole = self.is_whole and is_last and damage.is_torn_tail and not self._is_clean
        if is_last and damage.is_torn_tail and not self._is_clean:
            what = "zeros" if damage.is_zero else "a frame that was not written to its end"
            self.findings.note(
                place,
                f"a torn tail of {damage.size:,} bytes: {what}",
                "it is cut off; it has nothing that was confirmed",
                damage.offset,
                damage.size,
            )
        elif is_last and damage.is_tail and self._is_clean:
            self.findings.warn(
                place,
                f"the last {damage.size:,} bytes are damaged, although the virtual host was stopped cleanly",
                "warren ignores them; no message is lost, because a clean stop has written all to the segments",
                damage.offset,
                damage.size,
            )
        elif is_last and damage.is_tail:
            self.findings.warn(
                place,
                f"the last {damage.size:,} bytes are a frame with a wrong checksum",
                "warren ignores them. Harmless if the power failed while they were written, because then "
                "they have nothing that was confirmed; otherwise they were damaged later, "
                "and the messages and acknowledgements in them are lost",
                damage.offset,
                damage.size,
            )
        else:
            more = f" and {others} further places" if others else ""
            kept = (
                f"; behind it {behind.frames:,} whole frames, with {behind.published:,} messages "
                f"and {behind.acked:,} acknowledgements"
                if behind.frames
                else ""
            )
            self.findings.error(
                place,
                f"{damage.size:,} damaged bytes{more}{kept}",
                "warren ignores them and replays all whole frames. Messages that were published there are lost "
                "unless a segment has them, and messages that were acknowledged there may come back. "
                "Restore the file from a backup if there is one",
                damage.offset,
                damage.size,
            )

    def _replay(self, place: str, offset: int, entry: Record) -> None:
        if entry.type is Type.RETIRE:
            self.retired = max(self.retired, entry.queue)
            return
        if entry.type is Type.DELETE:
            self.queues.pop(entry.queue, None)
            return
        if entry.type is Type.HANDED_OVER:
            self.in_transit.add(decode_handed_over(entry.body), 0)
            return
        if entry.type is Type.TAKEN:
            self.in_transit.take(decode_taken(entry.queue, entry.body))
            return
        queue = self.queues.setdefault(entry.queue, Replayed())
        if entry.type is Type.PUBLISH:
            for run, is_stored in decode_runs(entry.body):
                span = range(run.first, run.end)
                if queue.embedded.count_in(span) or queue.stored.count_in(span):
                    self.findings.error(
                        place,
                        f"messages {run.first} to {run.end - 1} of queue {entry.queue:x} are published a second time",
                        "they are counted twice. This is a fault of warren; please report it",
                        offset,
                    )
                    continue
                (queue.stored if is_stored else queue.embedded).add(lightened(run, is_stored))
                queue.next_number = max(queue.next_number, run.end)
        elif entry.type is Type.ACK:
            queue.ack(decode_spans(entry.body))
        elif entry.type is Type.SIZES:
            merge_sizes(queue.sizes, decode_sizes(entry.body))
        elif entry.type is Type.RETURNED:
            queue.returns.update(decode_returns(entry.body))
        elif entry.type is Type.LIVES:
            self._check_lives(place, offset, entry, decode_lives(entry.body))
            queue.lives = decode_lives(entry.body)
        elif entry.type is Type.DIGESTS:
            decode_digests(entry.body)
            queue.digests.append(entry.body)
        # A STATE record may reserve numbers that were never given, so it does not count here.

    def _check_lives(self, place: str, offset: int, entry: Record, lives: Lives) -> None:
        """Gaps ascend, and so do their lives, up to the present one."""
        bounds = [number for gap in lives.gaps for number in (gap.first, gap.next)]
        past = [gap.life for gap in lives.gaps]
        if bounds != sorted(bounds) or past != sorted(set(past)) or past and past[-1] > lives.life:
            self.findings.error(
                place,
                f"the gaps in the numbers of queue {entry.queue:x} are out of order",
                "readers may take numbers that no message had for lost messages. This is a fault of warren; please "
                "report it",
                offset,
            )


def _count(entry: Record, behind: _BehindCounts) -> None:
    if entry.type is Type.PUBLISH:
        behind.published += sum(len(run.contents) for run, _ in decode_runs(entry.body))
    elif entry.type is Type.ACK:
        behind.acked += sum(map(len, decode_spans(entry.body)))


def lightened(run: Run, is_stored: bool) -> Run:
    """The run with stubs for contents, equal ones for embedded messages of one size.

    Raises ValueError if a message in the store has no stub.
    """
    if is_stored:
        if any(len(stub) != STUB_SIZE for stub in run.contents):
            raise ValueError("a body in the message store is named by something that is no stub")
        return run
    sizes = run.measured()
    run.contents = (
        [_placeholder(sizes)] * len(run.contents) if isinstance(sizes, int) else list(map(_placeholder, sizes))
    )
    return run


@lru_cache(maxsize=1024)
def _placeholder(body_size: int) -> bytes:
    return make_stub(bytes(16), body_size)
