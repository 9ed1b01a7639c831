"""The messages of `Indexer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.contract import Contract, message
from ...store.message_index.message_index import Engine, Hit
from ...store.message_index.steps import Gone, Rest


class Came(NamedTuple):
    """Messages with consecutive numbers from `first` on came into the queue at `stored_at`, in ms since the epoch."""

    first: int
    stored_at: int
    #: The encoded properties of each message.
    props: list[bytes]


#: What a queue reports, in order.
Report = Came | Gone | Rest


@dataclass(frozen=True, slots=True)
class IndexerSettings:
    """What the message index of a virtual host needs to start."""

    vhost: str
    #: The directory of the virtual host in the operating system.
    path: str
    max_bytes: int
    #: The queues that exist, by their number. Others of which the index has messages were deleted.
    queues: frozenset[int]
    engine: Engine = Engine()


class FoundMessages(NamedTuple):
    """The answer of a search."""

    #: The newest first.
    hits: list[Hit]
    #: Whether there are more messages than these, or the search was given up.
    is_truncated: bool
    #: The name of each queue among the hits, and the sources of its keys.
    queues: dict[int, tuple[str, tuple[str, ...]]]
    #: When the index was last written, in ms since the epoch, and the last position that it gave.
    last_update_timestamp: int
    last_update_position: int


class ToIndexer(Contract):
    """What `Indexer` receives."""

    @message
    def register(self, queue: int, name: str, sources: tuple[str, ...], retention: int) -> int:
        """From queues, before they report, and when their settings change.

        `sources` are where its messages have their keys, `retention` is in ms. Answered with the number from which on
        the queue has to report its messages.
        """

    @message
    def report(self, queue: int, steps: Sequence[Report]) -> bool:
        """From queues: what happened since the last report. Answered True when it is written. Raises NotRegistered."""

    @message
    def forget(self, queue: int) -> None:
        """From queues that are no longer indexed: remove everything about this queue."""

    @message
    def deleted(self, queue: int, steps: Sequence[Report]) -> None:
        """From queues that end, with what they did not report yet: keep what is known about this queue for its
        retention.
        """

    @message
    def find(self, names: list[str] | None, key: bytes, begin: int, end: int, most: int) -> FoundMessages:
        """From operations: the messages of these queues, of all with None, that have this key and were stored from
        `begin` to `end`, in ms since the epoch. Raises IndexBusy.
        """

    @message
    def find_position(self, position: int) -> FoundMessages:
        """From operations: the message at this position, if there is one. Raises IndexBusy."""

    @message
    def close(self) -> bool:
        """From the virtual host, which stops, when all queues have ended. Answered True when the files are closed."""


to_indexer = ToIndexer()
