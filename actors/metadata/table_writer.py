"""`TableWriter`: keeps the durable part of the routing table on the disk, and decides what is written before what.

With a data directory, virtual hosts, durable exchanges, durable queues and bindings between durable ends are also rows
of a `MetadataStore`. A request is answered only after the commit that makes the answer true; commits are grouped
(`group_commit`). The order is:

- **An addition is written first, and enters the table after its commit.** Otherwise a message could be routed to, and
  confirmed by, a queue whose declaration a crash takes back, and would be lost with it. An addition that cannot be
  written is refused (541) and has no effect.
- **A removal leaves the table at once, and is written after that.** A queue whose `delete` was answered is gone even if
  the commit is still to come: what a crash brings back had not been answered. A removal that cannot be written is
  refused too, but stays in force and is written when the disk allows, because deleting queues is how an operator makes
  room on a full disk.

So every durable row of the table is on the disk. The disk alone has a row only while its removal has not been answered
yet. Removals that nobody asked for (auto-delete, expiry) are written without anybody waiting. RabbitMQ changes its
tables within one transaction and writes them later; it can lose a declaration that it has answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...routing.rows import ExchangeRow, QueueRow
from ...routing.table import Removed, RoutingTable
from ...runtime.contract import Address, Sender
from ...runtime.process import Process
from ...seams import seam
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.metadata_store import Change, MetadataError, MetadataStore
from ..disk.errors import StorageError
from .contract import ToMetadata, to_metadata
from .group_commit import GroupCommit
from .row_encoding import StoredRows, removals, stored_rows


class TableWriter:
    """Belongs to `process`, a Metadata. Until `open` nothing is durable: nothing is written, and nobody waits."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.store: MetadataStore | None = None
        self.commits: GroupCommit | None = None

    @property
    def is_durable(self) -> bool:
        """Whether there is a data directory to write to."""
        return self.commits is not None

    async def open(self, directory: DataDir) -> StoredRows:
        """Write to this data directory from now on, and return the rows it had. Raises StorageError."""
        try:
            self.store = await self._process.run_blocking(MetadataStore, directory.metadata)
            tables = await self._process.run_blocking(self.store.load)
        except MetadataError as error:
            raise StorageError(str(error)) from None
        self.commits = GroupCommit(self._process, self.store)
        return stored_rows(tables)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    @seam("when a change of metadata is answered")
    async def write(self, *changes: Change) -> None:
        """Wait until these changes, and all noted before, are on the disk. Raises AmqpError 541."""
        me: Address[ToMetadata] = self._process.myAddress
        await self._process.ask(me, to_metadata.write(changes))

    def answer_when_written(self, sender: Sender, changes: Sequence[Change]) -> None:
        """Answer `sender` when these changes, and all noted before, are on the disk; with AmqpError 541 if they cannot
        be.
        """
        if self.commits is None:
            self._process.reply(sender, None)
        else:
            self.commits.note(changes)
            self.commits.wait(sender)

    def note(self, *changes: Change) -> None:
        """Write these changes with the next commit, without waiting for it."""
        if self.commits is not None:
            self.commits.note(changes)

    async def await_pending(self, change: Change) -> None:
        """Wait until no pending commit contains this row.

        Otherwise a request could be answered "not found" for a row that still reaches the disk and comes back at the
        next start.
        """
        if self.commits is not None and self.commits.has_unwritten(change):
            await self.write()

    async def write_removed(
        self, routing: RoutingTable, vhost: str, removed: Removed, row: ExchangeRow | None = None
    ) -> None:
        """Wait until what was removed from the table is deleted on the disk too. Raises AmqpError 541."""
        if self.note_removed(routing, vhost, removed, row):
            await self.write()

    def note_removed(
        self, routing: RoutingTable, vhost: str, removed: Removed, row: ExchangeRow | QueueRow | None = None
    ) -> bool:
        """Delete with the next commit what was removed from the table; return False if the disk had none of it."""
        if self.commits is None:
            return False
        changes = removals(routing, vhost, removed, row)
        self.commits.note(changes)
        return bool(changes)

    def begin_commit(self) -> None:
        """Write what the turn that ends now has noted."""
        if self.commits is not None:
            self.commits.begin()
