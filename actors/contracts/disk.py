"""The messages of the processes that write the files of a virtual host: `Journal` and `MessageStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ...runtime.contract import Address
    from ...store.journal.log_writer import QueueRecords
    from ...store.journal.replay import Replayed
    from ...store.messages.lives import Numbering
    from ...store.messages.message import Origin
    from ...store.messages.message_ids import StoredSpan

    #: Dead letters that were handed over: origin, contents, body bytes, id of the first, whether the journal has them
    #: until they are taken, whether another process of the queue may have delivered them before.
    HandedEntry = tuple[Origin, Sequence[bytes], int, int, bool, bool]

# A queue has a number (`queue_number` in `store/data_dir/data_dir.py`), and each priority level of it has one: the
# queue's number shifted left by `LEVEL_BITS`, plus the priority. `queue` below is the first, `level` the second.


class FoundJournal(NamedTuple):
    """What a journal has at its start.

    levels       the levels whose messages or acks it has
    numberings   for each queue without a message in it, by queue: the numbering of each of its priorities
                 (`Replayed.numbering`)
    occupied     the queues for which it has messages, sizes of segments or dead letters
    """

    levels: set[int]
    numberings: dict[int, dict[int, Numbering]]
    occupied: set[int]


class ToDiskUser(Contract):
    """What a queue's process receives from the journal and the message stores that write for it."""

    @message
    def bump(self, peer: str, amount: int) -> None:
        """From the journal and the stores: credit for `amount` more messages.

        `peer` is the sender's name in this queue's credit: `journal`, `msg_store_persistent` or `msg_store_transient`.
        """

    @message
    def durable(self, position: int) -> None:
        """From the journal: the first `position` records of this queue are synced."""

    @message
    def handed_over(self, entries: list[HandedEntry]) -> None:
        """From the journal: dead letters of other queues, or of this one, which the journal has on the disk.

        The journal keeps the persistent ones until the queue records that it has taken them.
        """

    @message
    def batch_lost(self, by: str) -> None:
        """From the journal: a batch of records did not arrive.

        The queue crashes, and its next process starts from what is on the disk. `by` is `journal`.
        """

    @message
    def flush_synced(self) -> bool:
        """From the journal: write to segments everything that only the journal has, and sync the segments.

        Answered True when they are synced; then the journal removes files.
        """

    @message
    def stored(self, kind: str, ids: list[bytes]) -> None:
        """From message stores: these bodies are on the disk (`written`), or were removed before (`ignored`)."""


class ToJournal(Contract):
    """What `Journal` receives. `queue` is a queue's number."""

    @message
    def register(self, queue: int, address: Address[ToDiskUser]) -> None:
        """From a new queue: it will append records, and receives `durable`, `bump`, `batch_lost` and `flush_synced` at
        `address`.
        """

    @message
    def open(self, queue: int, address: Address[ToDiskUser]) -> dict[int, Replayed]:
        """From a queue that recovers: as `register`. Answered with what the journal has of the queue, by level."""

    @message
    def dormant(self, queues: dict[int, Address[ToDiskUser]]) -> None:
        """From the queue supervisor: these queues have nothing but numberings in the journal, and no process yet. Such
        a queue need not flush anything, gets dead letters at its address, and registers when it has its process.
        """

    @message
    def referred(self, queues: frozenset[int]) -> dict[int, list[StoredSpan]]:
        """From the virtual host, for queues that are down: the bodies that the journal names, by level."""

    @message
    def append(self, queue: int, gathered: list[QueueRecords], position: int, is_awaited: bool) -> None:
        """From queues: write these records. If `is_awaited`, write them at once, together with earlier ones that the
        journal has put off.

        `position` counts all records that the queue's process has appended by then.
        """

    @message
    def forget(self, queue: int) -> bool:
        """From the queue or its supervisor: the queue is deleted, and nothing that the journal has of it counts any
        more. Answered True.
        """

    @message
    def detach(self, queue: int, returns: dict[int, dict[int, int]]) -> None:
        """From a queue that ends in order: everything it had in the journal is in its segments, except for `returns`,
        how often its messages were returned, by level and number. These counts stay in the journal.
        """

    @message
    def close(self) -> bool:
        """From the virtual host: close the files and end.

        Answered True; if every queue has detached, the journal has no message and no acknowledgement.
        """


class ToMessageStore(Contract):
    """What `MessageStore` receives.

    `client` is a queue's number in hexadecimal. A body has a reference for each queue it is in.
    """

    @message
    def register(self, client: str, address: Address[ToDiskUser] | None, is_restart: bool = False) -> None:
        """From queues: it will write, and `address` receives `stored` and `bump`; None if it needs neither.

        `is_restart`: the queue has had another process before, so this one takes its place.
        """

    @message
    def write(self, client: str, messages: list[tuple[bytes, bytes]], is_urgent: bool = False) -> None:
        """From queues: pairs of id and body, one credit each.

        Each adds a reference and is answered once by `stored` (QS-30). `is_urgent`: messages wait for this answer.
        """

    @message
    def remove(self, client: str, ids: list[bytes]) -> None:
        """From queues: take away one reference of each."""

    @message
    def remove_between(self, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """From queues: take away one reference of each body with an id from `first` to `last` that is not in `keep`."""

    @message
    def empty(self, first: bytes | None, last: bytes) -> bool:
        """From the queue supervisor: forget the bodies with ids from `first` to `last`, because these ids are about to
        be given to new bodies. Answered True.
        """

    @message
    def dormant(self, clients: list[str]) -> bool:
        """From the queue supervisor, at a clean stop: these clients were not needed since the start, and have no
        message. They count as detached. Answered True.
        """

    @message
    def missing(self, spans: list[StoredSpan]) -> list[int]:
        """From queues: the numbers in `spans` whose bodies have no reference."""

    @message
    def adopt(self, spans: list[StoredSpan]) -> list[int]:
        """From queues: as `missing`, and every other body gets one more reference."""

    @message
    def read_many(self, ids: list[bytes]) -> list[bytes | None]:
        """From queues: the bodies, None for one that is not there."""

    @message
    def forget(self, client: str) -> None:
        """From queues: the queue is deleted and has removed what it wrote."""

    @message
    def doubt(self) -> None:
        """From the virtual host: some references may be left that no queue will remove, so the next start must count
        all references anew.
        """

    @message
    def detach(self, client: str) -> bool:
        """From a queue that ends in order: its bodies stay. Answered True when everything it sent before is handled."""

    @message
    def close(self) -> bool:
        """From the virtual host: close the files and end. Answered True."""


to_disk_user = ToDiskUser()
to_journal = ToJournal()
to_message_store = ToMessageStore()
