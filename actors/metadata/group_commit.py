"""`GroupCommit`: writes the changes that `Metadata` makes to its store, many of them in one commit, and answers whoever
waits for one.

Changes gather while a commit runs in another thread, and all of them share the next one. A commit begins at the end of
the turn that brought its first change, so nobody waits longer than for the commit that is running and for his own.

A commit that fails refuses everybody who waits for it. What it was to add is forgotten, because whoever asked for that
is refused; but it might be on the disk all the same, and what the commit was to delete still is. So **every row that
the failed commit named is to be deleted**. These deletions are owed: they go into the next commit, which runs when the
next change comes and at least every `RETRY_SECONDS`. Deleting them all is right because no row that a running commit
names is in the routing table as durable: a row is added to the table after its commit, and is removed from the table
before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...runtime.contract import Sender
from ...runtime.process import Process
from ...store.data_dir.metadata_store import Change, MetadataStore, MetadataWriteError
from ..disk.disk_retry import DiskRetry
from .row_encoding import removal

#: Seconds until what is owed is tried again though no change comes.
RETRY_SECONDS = 5.0

CONSEQUENCE = (
    "Messages are not affected, but durable exchanges, queues and bindings can be neither declared nor deleted (541)"
)

#: A table and the key of a row in it.
RowKey = tuple[str, tuple[str | bytes, ...]]


class GroupCommit:
    """Belongs to `process`, whose `after_batch` calls `begin`."""

    def __init__(self, process: Process, store: MetadataStore) -> None:
        self._process = process
        self._store = store
        self._disk_retry = DiskRetry(process, "metadata", None, CONSEQUENCE)
        #: The changes of the next commit; the last one of a row counts.
        self._changes: dict[RowKey, Change] = {}
        #: The askers that the next commit answers.
        self._waiting: list[Sender] = []
        #: The changes of the commit that is running.
        self._written: dict[RowKey, Change] = {}
        #: The askers that the running commit answers; None if no commit is running.
        self._in_flight: list[Sender] | None = None
        self._has_retry = False

    @property
    def is_failing(self) -> bool:
        """Whether the last commit failed."""
        return self._disk_retry.is_failing

    def note(self, changes: Iterable[Change]) -> None:
        """Write these changes with the next commit."""
        self._changes.update(((change.table, change.key), change) for change in changes)

    def has_unwritten(self, change: Change) -> bool:
        """Whether the row that `change` names may still change on the disk."""
        key = change.table, change.key
        return key in self._changes or key in self._written

    def wait(self, sender: Sender) -> None:
        """Answer `sender` with None once everything noted so far is written, or with AmqpError 541 (INTERNAL_ERROR)."""
        if self._changes:
            self._waiting.append(sender)
        elif self._in_flight is not None:
            self._in_flight.append(sender)
        else:
            self._process.reply(sender, None)

    def begin(self) -> None:
        """Start a commit if there is something to write and no commit is running.

        After a failure only somebody who waits starts one, so that a full disk is not tried at every turn.
        """
        if self._changes and self._in_flight is None and (self._waiting or not self.is_failing):
            self._process.spawn(self._commit())

    async def _commit(self) -> None:
        changes = self._written = self._changes
        self._changes = {}
        waiting = self._in_flight = self._waiting
        self._waiting = []
        try:
            await self._process.run_blocking(self._store.apply, list(changes.values()))
        except MetadataWriteError as error:
            owed = {key: removal(change) for key, change in changes.items()}
            self._changes = {**owed, **self._changes}
            self._failed(waiting, error)
        else:
            self._disk_retry.worked()
            for sender in waiting:
                self._process.reply(sender, None)
        self._written, self._in_flight = {}, None
        self.begin()

    def _failed(self, waiting: list[Sender], error: MetadataWriteError) -> None:
        self._disk_retry.failed(error, RETRY_SECONDS)
        if not self._has_retry:
            self._has_retry = True
            self._process.spawn(self._retry_later())
        refusal = f"metadata cannot be written: {error}"
        for sender in waiting:
            self._process.reply_error(sender, AmqpError(INTERNAL_ERROR, refusal))

    async def _retry_later(self) -> None:
        await self._process.sleep(RETRY_SECONDS)
        self._has_retry = False
        if self._changes and self._in_flight is None:
            await self._commit()
