"""What `Journal` and `MessageStore` are started with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...runtime.contract import Address
from ...runtime.credit import STORE_PAIR, Pair
from ...store.bodies import store_engine
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, RecoveryProgress
from ...store.journal import journal_engine
from ..statistics.histograms import NodeHistograms

if TYPE_CHECKING:
    from ..contracts.resources import ToAlarms


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """What a `Journal` is started with.

    disk         the directory of the virtual host
    queues       the numbers of the durable queues there are; records of other queues are ignored
    vhost        the name of the virtual host, for the log
    alarms       the process that blocks publishers while the disk refuses writes, or None
    credit       the credit of each queue, in messages; the queue has the same pair
    histograms   those of the node, to which the journal adds its commits
    """

    disk: Disk
    queues: frozenset[int]
    segment_entries: int
    vhost: str
    alarms: Address[ToAlarms] | None = None
    file_limit: int = journal_engine.FILE_LIMIT
    credit: Pair = STORE_PAIR
    histograms: NodeHistograms = field(default_factory=NodeHistograms)


def no_references() -> Iterable[Sequence[bytes]]:
    """The references of a virtual host without durable queues."""
    return ()


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a `MessageStore` is started with.

    name         `msg_store_persistent` or `msg_store_transient`: the folder on `disk`, and the store's name in `bump`
    disk         the directory of the virtual host
    root         the path of that directory, for the index, which LMDB opens itself
    alarms       the process that blocks publishers while the disk refuses writes, or None
    clients      the queues that ended cleanly, None if not all did
    references   returns the ids that queue indexes name, some at a time. It is called in another thread if references
                 have to be counted, so it is a function of a module or a partial of one
    boot_id      see `StoreEngine`
    progress     is notified of files that have to be scanned
    credit       the credit of each queue, in messages; the queue has the same pair
    """

    name: str
    disk: Disk
    root: str
    alarms: Address[ToAlarms] | None = None
    is_durable: bool = True
    clients: Collection[str] | None = None
    references: Callable[[], Iterable[Sequence[bytes]]] = no_references
    file_limit: int = store_engine.FILE_LIMIT
    boot_id: str | None = None
    progress: RecoveryProgress = NO_PROGRESS
    credit: Pair = STORE_PAIR
