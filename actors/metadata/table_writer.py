"""What of the routing table is kept on the disk, and what is written before what.

With a data directory, virtual hosts, durable exchanges, durable queues and bindings between durable ends are also kept in a `MetadataStore`, and
an answer goes out only after the commit that makes it true; commits are grouped (`group_commit`). The order is this:

- **What is added is written first and put into the table after.** Nobody can be routed to, or through, what a crash would take back: a message confirmed by a queue whose
  declaration is lost would be lost with it. An addition that cannot be written is refused (541) and has no effect.
- **What is removed leaves the table at once, and is then written.** A queue that answered `delete` is gone whatever the disk says, and what a crash brings back had not been
  answered. A removal that cannot be written is refused too, but stays in force and is written when the disk allows: deleting queues is how one makes room on a full disk.

So everything durable in the table is on the disk, and of what is on the disk only removals that nobody was told of are missing in the table. What comes of itself (auto-delete,
expiry) is written without anybody waiting. RabbitMQ changes its tables within one transaction and writes them later; it can lose a declaration that was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...routing.rows import ExchangeRow, QueueRow
from ...routing.table import Removed
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.metadata_store import Change, MetadataError, MetadataStore
from ..disk.errors import StorageError
from . import row_encoding as durable_rows
from .group_commit import GroupCommit

if TYPE_CHECKING:
    from .process import Metadata


class TableWriter:
    """On a node without a data directory nothing is kept: there is nothing to write, and nobody waits."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.store: MetadataStore | None = None
        self.commits: GroupCommit | None = None  # None: everything is in memory

    @property
    def is_kept(self) -> bool:
        return self.commits is not None

    async def open(self, directory: DataDir) -> durable_rows.Stored:
        """From here on what is durable is kept there; returns what was. Raises StorageError."""
        metadata = self._metadata
        try:
            self.store = await metadata.run_blocking(MetadataStore, directory.metadata)
            tables = await metadata.run_blocking(self.store.load)
        except MetadataError as error:
            raise StorageError(str(error)) from None
        self.commits = GroupCommit(metadata, self.store)
        return durable_rows.stored(tables)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def write(self, *changes: Change) -> None:
        """Return when these changes, and all noted before, are on the disk. Raises AmqpError 541."""
        await self._metadata.ask(self._metadata.myAddress, ("write", changes))

    def answer_when_written(self, sender: Any, changes: Sequence[Change]) -> None:
        """Answer `sender` when these changes, and all noted before, are on the disk; with AmqpError 541 if they cannot be."""
        if self.commits is None:
            self._metadata.reply(sender, None)
        else:
            self.commits.note(changes)
            self.commits.wait(sender)

    def note(self, *changes: Change) -> None:
        """Have these written with the next commit; nobody waits."""
        if self.commits is not None:
            self.commits.note(changes)

    async def settled(self, change: Change) -> None:
        """Return when that row is not about to be written: what is not in the table is not on the disk either, or we do not say so."""
        if self.commits is not None and self.commits.has_unwritten(change):
            await self.write()

    async def written_off(self, vhost: str, gone: Removed, row: ExchangeRow | None = None) -> None:
        """Return when what has been removed from the table is not on the disk either. Raises AmqpError 541."""
        if self.note_removed(vhost, gone, row):
            await self.write()

    def note_removed(self, vhost: str, gone: Removed, row: ExchangeRow | QueueRow | None = None) -> bool:
        """Have what has been removed from the table deleted on the disk; False if nothing of it was there."""
        if self.commits is None:
            return False
        changes = durable_rows.removals(self._metadata.routing, vhost, gone, row)
        self.commits.note(changes)
        return bool(changes)

    # --- when -----------------------------------------------------------------------------------------------------------

    def begin_commit(self) -> None:
        """At the end of a turn: what it noted is written."""
        if self.commits is not None:
            self.commits.begin()
