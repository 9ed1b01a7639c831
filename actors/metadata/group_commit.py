"""What `Metadata` has still to write to its store, and who waits for that.

Changes gather while a commit runs in another thread, and all of them share the next one; a commit begins at the end of the turn that brought its first change. Nothing waits
longer than the commit under way and its own.

A commit that fails refuses those who wait for it. What it should have put is forgotten, as whoever asked for it has been told; but it might be on the disk, and
what it should have taken away still is. So **everything the failed commit named is to be deleted**, and that is owed: it goes ahead of the next commit, which is tried
when the next change comes and every `RETRY_SECONDS`. That is right because no row that a commit names is in the routing table as durable at that time: it is put
before it gets there, and deleted after it went.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...runtime.process import Process
from ...store.data_dir.metadata_store import Change, MetadataStore, MetadataWriteError
from .row_encoding import removal

log = logging.getLogger("warren.metadata")

RETRY_SECONDS = 5.0


class GroupCommit:
    """Belongs to `process`, whose `after_batch` calls `begin` and whose timer with the payload `retry` calls `retry`."""

    def __init__(self, process: Process, store: MetadataStore) -> None:
        self._process = process
        self._store = store
        self._changes: dict[Any, Change] = {}  # by table and key: the last one counts
        self._waiting: list[Any] = []
        self._written: dict[Any, Change] = {}  # by the commit that runs
        self._in_flight: list[Any] | None = None  # who waits for it, if one runs
        self._has_timer = False
        self.is_failing = False
        """The last commit failed."""

    def note(self, changes: Iterable[Change]) -> None:
        """Have these written with the next commit."""
        self._changes.update(((change.table, change.key), change) for change in changes)

    def has_unwritten(self, change: Change) -> bool:
        """Whether the row that `change` names may still change on the disk."""
        key = change.table, change.key
        return key in self._changes or key in self._written

    def wait(self, sender: Any) -> None:
        """Answer `sender` with None once everything noted so far is written, or with AmqpError 541 (INTERNAL_ERROR)."""
        if self._changes:
            self._waiting.append(sender)
        elif self._in_flight is not None:
            self._in_flight.append(sender)
        else:
            self._process.reply(sender, None)

    def begin(self) -> None:
        """Start a commit if there is something to write and none runs."""
        if self._changes and self._in_flight is None and (self._waiting or not self.is_failing):
            self._process.spawn(self._commit())

    def retry(self) -> None:
        """Try again what is owed."""
        self._has_timer = False
        if self._changes and self._in_flight is None:
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
            self._failed(waiting, str(error))
        else:
            if self.is_failing:
                log.info("metadata is written again; nothing is owed")
            self.is_failing = False
            for sender in waiting:
                self._process.reply(sender, None)
        self._written, self._in_flight = {}, None
        self.begin()

    def _failed(self, waiting: list[Any], reason: str) -> None:
        if not self.is_failing:
            log.error(
                "metadata cannot be written: %s. Durable exchanges, queues and bindings can be neither declared nor deleted (541) until the disk "
                "of the data directory takes writes again: look at its free space, quota and mount. Messages are not affected; it is tried again every %d s",
                reason,
                RETRY_SECONDS,
            )
        self.is_failing = True
        if not self._has_timer:
            self._has_timer = True
            self._process.start_timer(RETRY_SECONDS, "retry")
        refusal = f"metadata cannot be written: {reason}"
        for sender in waiting:
            self._process.reply_error(sender, AmqpError(INTERNAL_ERROR, refusal))
