"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from collections.abc import Container

    from ...runtime.contract import Address
    from ...store.journal.journal_engine import Replayed
    from ...store.journal.log_writer import QueueRecords
    from ...store.messages.message_ids import StoredSpan
    from ..queue.contract import ToQueue
    from .journal import JournalSettings
    from .message_store import StoreSettings


class ToJournal(Contract):
    """What `Journal` (`actors/disk/journal.py`) receives."""

    @message
    def start(self, settings: JournalSettings) -> set[int]:
        """TODO"""

    @message
    def register(self, queue: int, address: Address[ToQueue]) -> None:
        """TODO"""

    @message
    def open(self, queue: int, address: Address[ToQueue]) -> Replayed | None:
        """TODO"""

    @message
    def referred(self, queues: frozenset[int]) -> dict[int, list[StoredSpan]]:
        """TODO"""

    @message
    def append(self, queue: int, gathered: list[QueueRecords], position: int) -> None:
        """TODO"""

    @message
    def forget(self, queue: int) -> None:
        """TODO"""

    @message
    def detach(self, queue: int) -> None:
        """TODO"""

    @message
    def write_all(self) -> None:
        """Answered when everything appended by now is written; no commit begins until the asker says so."""

    @message
    def close(self) -> bool:
        """Answered True when the journal is closed."""


class ToMessageStore(Contract):
    """What `MessageStore` (`actors/disk/message_store.py`) receives."""

    @message
    def start(self, settings: StoreSettings) -> bool:
        """TODO"""

    @message
    def register(self, client: str, address: Address[ToQueue]) -> None:
        """TODO"""

    @message
    def write(self, client: str, messages: list[tuple[bytes, bytes]]) -> None:
        """TODO"""

    @message
    def remove(self, client: str, ids: list[bytes]) -> None:
        """TODO"""

    @message
    def remove_between(self, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """A portion; the rest follows in a message to itself, so that others get their turn."""

    @message
    def go_on_removing(self, client: str, first: bytes, last: bytes, keep: Container[bytes]) -> None:
        """TODO"""

    @message
    def empty(self, first: bytes | None, last: bytes) -> bool:
        """TODO"""

    @message
    def next_turn(self) -> bool:
        """To itself, for what goes on when others have had their turn."""

    @message
    def contains(self, message_id: bytes) -> bool:
        """TODO"""

    @message
    def missing(self, spans: list[StoredSpan]) -> list[int]:
        """TODO"""

    @message
    def adopt(self, spans: list[StoredSpan]) -> list[int]:
        """TODO"""

    @message
    def read(self, message_id: bytes) -> bytes | None:
        """TODO"""

    @message
    def read_many(self, ids: list[bytes]) -> list[bytes | None]:
        """TODO"""

    @message
    def forget(self, client: str) -> None:
        """TODO"""

    @message
    def doubt(self) -> None:
        """TODO"""

    @message
    def detach(self, client: str) -> bool:
        """TODO"""

    @message
    def clients(self) -> list[str]:
        """TODO"""

    @message
    def close(self) -> bool:
        """Answered True when the store is closed."""


to_journal = ToJournal()
to_message_store = ToMessageStore()
