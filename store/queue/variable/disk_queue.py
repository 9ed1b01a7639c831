"""`DiskQueue`: a backing queue that keeps messages on the disk, and its **disk side**.

`BackingQueue` has the operations of every queue. The disk side has the operations with which the owner of a queue with
a disk recovers it at a start, runs the jobs of its `segment_writer` in another thread, reports which positions have
become durable, decides how much may stay in memory, and gets the terms for the next start at a clean stop. A queue with
priorities has a disk side for each level.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from ...disk.progress import NO_PROGRESS, RecoveryProgress
from ...messages.message_ids import StoredSpan
from ..backing_queue import BackingQueue
from .segment_writer import SegmentWriter


class DiskQueue(BackingQueue):
    """See the module. `terms` are what `terminate` returned at a clean end, and None after an unclean one."""

    #: Whether any message has, or had, an expiry.
    may_expire: bool
    #: Whether every persistent message goes to the journal, which has more about it than a segment.
    is_journaled_only: bool
    #: By number, how often each message was returned, if the owner counts that (`SupportsRangeRead`).
    returns: dict[int, int]
    #: The jobs that write segments and remove them.
    segment_writer: SegmentWriter

    # -- start and end: these wait for the disk

    @abstractmethod
    def scan(self, terms: dict[str, Any] | None, progress: RecoveryProgress = NO_PROGRESS) -> list[StoredSpan]:
        """The first half of a recovery: returns the messages whose bodies are in the persistent store."""

    @property
    @abstractmethod
    def needs_disk_to_recover(self) -> bool:
        """Whether `recover`, called without missing bodies, reads or writes files. Known after `scan`."""

    @abstractmethod
    def recover(self, terms: dict[str, Any] | None, missing: Sequence[int], is_copy: bool = False) -> None:
        """Recover the queue, after `scan`. The messages with the numbers `missing` are dropped, because the persistent
        store has no body for them.

        A queue whose last process did not end cleanly continues behind all numbers that it has reserved. A copy of
        another replica's queue (`is_copy`) does not: it gives no numbers itself, and gets messages with the numbers
        that follow its last one.
        """

    @abstractmethod
    def terminate(self) -> dict[str, Any]:
        """End, and keep the persistent messages. Returns the terms for the next start.

        They count pending persistent messages, which are ready after the restart.
        """

    @property
    @abstractmethod
    def has_lost_entries(self) -> bool:
        """Whether damage was found in the index since the start.

        The store may have bodies to which no queue refers any more, so the next start must count references as after
        an unclean end.
        """

    # -- while it runs

    @abstractmethod
    def durable(self, journal: int, store: int) -> None:
        """Note that the journal and the persistent store are on the disk up to these positions."""

    @abstractmethod
    def repeat_returns(self) -> None:
        """Record all returns of messages once more, because the journal is about to give up the earlier records."""

    @abstractmethod
    def direct_counts(self) -> tuple[int, int]:
        """How many messages ever went directly to segments, without the journal, and how many of these are on disk.

        The owner bounds the difference.
        """

    @property
    @abstractmethod
    def awaits_journal_to_end(self) -> bool:
        """Whether the journal must have synced before the last flush: messages have left for another queue or come from
        one, or a damaged file has no message left and is to be removed.
        """

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """Whether an event other than an operation of this queue may give the owner something to do for it: the journal
        or a store syncs, or a job of `segment_writer` ends.
        """

    @abstractmethod
    def set_ram_duration_target(self, seconds: float) -> None:
        """Limit the seconds of traffic that stay in memory, and move to the disk what is above that; INFINITE for no
        limit.
        """

    @abstractmethod
    def ram_duration(self) -> float:
        """Refresh the rates. Returns how many seconds of traffic are in memory, or INFINITE for an idle queue."""

    @property
    @abstractmethod
    def is_paging_due(self) -> bool:
        """Whether the last step of paging left more to do, so that the owner has to call `page`."""

    @abstractmethod
    def page(self) -> None:
        """Take the next step of paging: the last one left more to do, or the journal or a store has granted credit
        again.
        """

    @abstractmethod
    def take_lost(self) -> int:
        """How many messages have been lost since the last call, because their data on the disk is damaged."""

    @abstractmethod
    def references(self) -> Iterator[tuple[bool, bytes]]:
        """The bodies in message stores to which this queue refers: whether the store is the persistent one, and the id.

        Waits for the disk, from which it reads all entries that are not in memory. The simulation compares the ids with
        the reference counts of the stores.
        """
