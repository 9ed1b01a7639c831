"""`JournalView` and `MessageStoreView`: what these processes show of their bookkeeping, for checks and for operators.

A view reads the process when it is asked, so a process that nobody inspects pays nothing. It is used between two turns,
on the thread of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...runtime.credit import CreditFlow
from .journal import Journal
from .message_store import MessageStore

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..contracts.disk import ToDiskUser


@dataclass(slots=True)
class JournalView:
    """See the module."""

    journal: Journal

    @property
    def credit(self) -> CreditFlow:
        """The journal's credit with the queues, by their numbers."""
        return self.journal._credit

    def queues(self) -> Collection[Address[ToDiskUser]]:
        """The queues that append records."""
        return self.journal._queues.addresses.values()

    def knows(self, number: int, address: Address[ToDiskUser]) -> bool:
        """Whether the queue with this number has registered, and is this process: the journal may not have read yet
        that the process before it has ended.
        """
        return self.journal._queues.addresses.get(number) == address

    def waiting(self, number: int) -> int:
        """Messages of this queue that the journal has read and not committed."""
        journal = self.journal
        messages = 0
        for batch in (journal._waiting, journal._in_commit, journal._unreported):
            if number in batch:
                messages += batch[number].messages
        return messages


@dataclass(slots=True)
class MessageStoreView:
    """See the module."""

    store: MessageStore

    @property
    def name(self) -> str:
        return self.store._name

    @property
    def credit(self) -> CreditFlow:
        """The store's credit with the queues, by their client ids."""
        return self.store._credit

    def queues(self) -> Collection[Address[ToDiskUser]]:
        """The queues that write and receive grants."""
        return self.store._addresses.values()

    def knows(self, client: str, address: Address[ToDiskUser]) -> bool:
        """Whether the queue with this client id has registered for grants, and is this process: the store may not have
        read yet that the process before it has ended.
        """
        return self.store._addresses.get(client) == address

    @property
    def is_settled(self) -> bool:
        """Whether the store is open and no sync is in progress, so that its counts can be checked."""
        return self.store._engine is not None and not self.store._is_syncing

    @property
    def is_tainted(self) -> bool:
        """Whether the store may count references that no queue has, because of a crash."""
        return self.store.engine.is_tainted

    def references(self) -> Counter[bytes]:
        """How many references each body has."""
        return Counter(self.store.engine.reference_counts())

    def check(self) -> None:
        """Check the invariants of the store. Raises AssertionError."""
        self.store.engine.check()
