"""The result of an offline check: findings, and counts of what is in the directory.

A **finding** has a severity, a place, what was found there, and what warren will do about it at its next start:

    note       no message is lost: a crash, or a stop at an unusual moment, leaves a directory like this
    warning    no confirmed message is known to be lost, but warren never leaves a directory like this
    error      something is lost or unreadable, or warren cannot start with it

A damaged file may have a million damaged places, so only the first findings of each place (mostly a file) are kept, and
the others are counted.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

#: How many findings of one place and severity are kept.
KEPT_OF_A_PLACE = 20


class Severity(enum.IntEnum):
    """The severity of a finding, in rising order."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """`place` is a path below the data directory, `offset` a byte in that file or None, and `size` how many bytes from
    there on are damaged, or None.
    """

    severity: Severity
    place: str
    offset: int | None
    found: str
    outcome: str
    size: int | None = None


class Findings:
    """Gathers findings, and keeps the first ones of each place. `directory` is put before every place."""

    def __init__(self, directory: str = "") -> None:
        self._prefix = f"{directory}/" if directory else ""
        self._kept: list[Finding] = []
        self._by_place: Counter[tuple[str, Severity]] = Counter()

    def note(self, place: str, found: str, outcome: str, offset: int | None = None, size: int | None = None) -> None:
        self.add(Severity.NOTE, place, found, outcome, offset, size)

    def warn(self, place: str, found: str, outcome: str, offset: int | None = None, size: int | None = None) -> None:
        self.add(Severity.WARNING, place, found, outcome, offset, size)

    def error(self, place: str, found: str, outcome: str, offset: int | None = None, size: int | None = None) -> None:
        self.add(Severity.ERROR, place, found, outcome, offset, size)

    def add(
        self,
        severity: Severity,
        place: str,
        found: str,
        outcome: str,
        offset: int | None = None,
        size: int | None = None,
    ) -> None:
        place = self._prefix + place
        self._by_place[place, severity] += 1
        if self._by_place[place, severity] <= KEPT_OF_A_PLACE:
            self._kept.append(Finding(severity, place, offset, found, outcome, size))

    def include(self, others: Findings) -> None:
        """Add the findings of `others`, whose places are below this directory."""
        self._kept += (finding._replace(place=self._prefix + finding.place) for finding in others._kept)
        self._by_place += Counter(
            {(self._prefix + place, severity): count for (place, severity), count in others._by_place.items()}
        )

    def unreadable(self, place: str, error: OSError) -> None:
        """Add that the operating system refused to read a place."""
        self.error(
            place,
            f"it cannot be read: {error.strerror or error}",
            "not known. Look at the permissions and at the disk, then verify again",
        )

    @property
    def worst(self) -> Severity | None:
        return max((severity for _, severity in self._by_place), default=None)

    def __iter__(self) -> Iterator[Finding]:
        """The kept findings in order, then one for each place that counts the others."""
        yield from self._kept
        for (place, severity), count in self._by_place.items():
            if count > KEPT_OF_A_PLACE:
                found = f"{count - KEPT_OF_A_PLACE:,} more findings of this severity"
                yield Finding(severity, place, None, found, "as above")


@dataclass
class QueueReport:
    """The messages of a queue that are ready after a restart, and the bytes of their bodies; all levels together.

    name              None if no durable queue has that number
    missing_bodies    messages whose bodies are in no file of the message store
    """

    name: str | None
    number: str
    segment_messages: int = 0
    segment_bytes: int = 0
    journal_messages: int = 0
    journal_bytes: int = 0
    #: Dead letters that left their queue and are not in another yet.
    in_transit: int = 0
    segments: int = 0
    missing_bodies: int = 0

    @property
    def messages(self) -> int:
        return self.segment_messages + self.journal_messages

    @property
    def message_bytes(self) -> int:
        return self.segment_bytes + self.journal_bytes


@dataclass
class DataFileReport:
    """A file of the message store. `live` counts the bytes of records that queues refer to; the rest is garbage."""

    name: str
    size: int
    live: int = 0
    damaged: int = 0

    @property
    def garbage(self) -> int:
        return self.size - self.live


@dataclass
class VhostReport:
    """A virtual host. `stopped` is 'clean', 'unclean', or 'new' if no message was ever in it."""

    name: str | None
    directory: str
    stopped: str = "new"
    journal_files: int = 0
    journal_bytes: int = 0
    #: Dead letters that left their queue and are not in another yet.
    in_transit: int = 0
    queues: list[QueueReport] = field(default_factory=list)
    files: list[DataFileReport] = field(default_factory=list)


@dataclass
class VerifyReport:
    """The result of the check of a data directory."""

    path: str
    format: int
    vhosts: list[VhostReport] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    @property
    def is_fine(self) -> bool:
        """Whether there are only notes."""
        return self.findings.worst in (None, Severity.NOTE)

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON. Bytes of names that are not UTF-8 are lone surrogates, which JSON writes as escapes."""
        worst = self.findings.worst
        return {
            "path": self.path,
            "format": self.format,
            "result": "fine" if worst is None else worst.name.lower(),
            "vhosts": [
                {
                    **{name: value for name, value in vars(vhost).items() if name not in ("queues", "files")},
                    "queues": [
                        {**asdict(queue), "messages": queue.messages, "message_bytes": queue.message_bytes}
                        for queue in vhost.queues
                    ],
                    "files": [{**asdict(file), "garbage": file.garbage} for file in vhost.files],
                }
                for vhost in self.vhosts
            ],
            "findings": [{**finding._asdict(), "severity": finding.severity.name.lower()} for finding in self.findings],
        }
