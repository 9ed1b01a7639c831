"""`DiskLevels`: the variable queues of one queue, what they may keep in memory, and what they write on its way to the
disk.

A queue with priorities has a variable queue for each level that was ever used, any other queue has one. The variable
queues gather entries for the journal of the virtual host, and bodies that are too large for the journal for one of the
message stores. `send`, which is called at the end of each turn and before a store is asked for a body, sends both.

`DiskLevels` refers neither to `Durability` nor to the backing queue. These two and `DiskLoader` refer to `DiskLevels`,
so that no reference cycle keeps a deleted queue in memory until the garbage collector runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ....routing.queue_types import STREAM
from ....routing.rows import QueueRow
from ....runtime.credit import CreditFlow, Pair, Relation, check_pair
from ....runtime.process import Process
from ....store.bodies.store_client import Sent, StoreClient
from ....store.data_dir.data_dir import queue_number
from ....store.data_dir.vhost_dir import LEVEL_BITS, PERSISTENT, TRANSIENT, queue_directory
from ....store.index.queue_index import QueueIndex
from ....store.journal.log_writer import LogWriter
from ....store.journal.replay import Replayed
from ....store.messages.lives import Numbering
from ....store.queue.rates import INFINITE
from ....store.queue.streams.stream_queue import StreamQueue
from ....store.queue.variable.disk_queue import DiskQueue
from ....store.queue.variable.variable_queue import VariableQueue
from ...contracts.disk import to_journal, to_message_store

if TYPE_CHECKING:
    from ....runtime.contract import Address
    from ...contracts.disk import ToMessageStore
    from ...contracts.queue import VhostStorage


#: The queue keeps the sizes of its segments back for this many seconds, so that they travel with its next records. A
#: lazy queue syncs a segment a thousand times a second, and to send each size by itself would cost the journal a turn.
#: The journal then keeps them back too, for the records of other queues (`journal.SIZES_SECONDS`).
SIZES_WAIT_SECONDS = 0.04


@lru_cache(maxsize=16)
def _relations(pair: Pair) -> Mapping[Hashable, Relation]:
    """The credit of a queue with the processes that write to the disk for it, and for its own direct writes
    (`segments`). All queues of a node share one such table.
    """
    pair = check_pair(pair, "msg_store_credit_disc_bound")
    return {
        "journal": (pair, "journal"),
        "segments": (pair, "segments"),
        PERSISTENT: (pair, "store"),
        TRANSIENT: (pair, "store"),
    }


class DiskLevels:
    """The variable queues of the queue `row`, whose process is `process`."""

    __slots__ = (
        "_credit",
        "_direct_of",
        "direct",
        "direct_safe",
        "_is_ended",
        "_is_recording_sizes",
        "_is_journaled_only",
        "_is_stream",
        "_keeps_numbers",
        "_process",
        "_storage",
        "_transient",
        "by_priority",
        "client",
        "has_transient",
        "is_restart",
        "journal",
        "number",
        "numberings",
        "persistent",
        "replayed",
        "target",
        "written",
    )

    def __init__(
        self,
        process: Process,
        row: QueueRow,
        credit: CreditFlow,
        storage: VhostStorage,
        has_levels: bool,
        is_journaled_only: bool,
    ) -> None:
        number = queue_number(row.queue_id)
        self._process = process
        self._credit = credit
        self._storage = storage
        self._is_ended = self._is_recording_sizes = False
        #: Whether the queue has been recovered, so that an earlier process may have registered at the stores.
        self.is_restart = False
        self._is_stream = row.type == STREAM.name
        #: Whether the index keeps the numbers of messages that are gone, because readers may read the queue by number.
        #: That includes lane 0 of a queue that has fair lanes by a policy: without the policy the queue is its lane 0.
        self._keeps_numbers = row.durable and not has_levels and not self._is_stream
        #: Whether all publishes must go by way of the journal: the queue deduplicates, and the journal has the digests
        #: of its messages.
        self._is_journaled_only = is_journaled_only
        #: The queue's number in the journal and in the names of its directories.
        self.number = number
        #: The queue's name at the message stores and the memory monitor.
        self.client = f"{number:x}"
        #: The variable queues by priority; one with number 0 if the queue has no levels.
        self.by_priority: dict[int, DiskQueue] = {}
        #: During a recovery: what the journal has of the variable queues that are not made yet, by number. None at any
        #: other time.
        self.replayed: dict[int, Replayed] | None = None
        #: By priority: where the numbering stands of the levels that have no message and were not used since the start.
        self.numberings: dict[int, Numbering] = {}
        self.journal = LogWriter(row.durable)
        #: Gathers what goes to the persistent message store.
        self.persistent = StoreClient()
        self._transient = StoreClient()
        #: Whether the queue is registered at the transient store.
        self.has_transient = False
        #: Messages that were written to the journal or to segments since the queue's process started.
        self.written = 0
        #: Messages written to segments directly, without the journal, and those of them that are synced. They count
        #: against a credit of their own, which no process grants: `send` returns it when the messages are synced.
        self.direct = self.direct_safe = 0
        #: The same of each level.
        self._direct_of: dict[int, tuple[int, int]] = {}
        #: Seconds of the queue's traffic that may be in memory.
        self.target = INFINITE
        credit.share(_relations(storage.credit))

    def make(self, priority: int) -> DiskQueue:
        """Make the variable queue of a level."""
        storage = self._storage
        number = self.number << LEVEL_BITS | priority
        replayed = None if self.replayed is None else self.replayed.pop(number, None)
        if replayed is not None:
            self.journal.resume(number, replayed.next_number)
        index = QueueIndex(storage.disk, queue_directory(number), number, self.journal, storage.segment_entries)
        level = (StreamQueue if self._is_stream else VariableQueue)(
            number,
            index,
            self.persistent,
            self._transient,
            replayed,
            embed_below=storage.embed_below,
            segment_entries=storage.segment_entries,
            clock=self._process.clocks()[0],
            keeps_numbers=self._keeps_numbers and not priority,
        )
        level.is_journaled_only = self._is_journaled_only
        self.by_priority[priority] = level
        numbering = self.numberings.pop(priority, None)
        if numbering is not None:
            # The journal may still have records with these numbers, which a deletion of the level must cancel by a
            # record of its own.
            self.journal.resume(number, numbering.stop)
            level.begin_empty(numbering)
        if self.target != INFINITE:
            level.set_ram_duration_target(self.target)
        return level

    def set_journaled_only(self, is_journaled_only: bool) -> None:
        """Note whether all publishes must go by way of the journal from now on."""
        self._is_journaled_only = is_journaled_only
        for level in self.by_priority.values():
            level.is_journaled_only = is_journaled_only

    def register(self, store: str) -> None:
        """Register the queue at one of the message stores."""
        address = self._storage.persistent if store == PERSISTENT else self._storage.transient
        self._process.send(address, to_message_store.register(self.client, self._process.myAddress, self.is_restart))

    # -- what may stay in memory ----------------------------------------------------------------------

    def ram_duration(self) -> float:
        """Refresh the rates. Returns how many seconds of traffic are in memory, or INFINITE for an idle queue."""
        return min([level.ram_duration() for level in self.by_priority.values()], default=INFINITE)

    def set_target(self, seconds: float) -> None:
        """Let `seconds` of the queue's traffic be in memory, and move to the disk what is above that."""
        self.target = seconds
        self._set_target(seconds)

    def page_out(self) -> None:
        """Move to the disk what need not be in memory. `target` stays, and the next report applies it again."""
        self._set_target(0.0)

    def _set_target(self, seconds: float) -> None:
        for level in self.by_priority.values():
            level.set_ram_duration_target(seconds)

    def page(self) -> None:
        """Take the next step of paging in each level."""
        for level in self.by_priority.values():
            level.page()

    def page_due(self) -> None:
        """Take the next step of paging in each level whose last step left more to do."""
        for level in self.by_priority.values():
            if level.is_paging_due:
                level.page()

    # -- what is written ----------------------------------------------------------------------------

    def end(self) -> None:
        """Send what has gathered, and nothing afterwards: the recovery terms describe what the disk has now."""
        self.send_all()
        self._is_ended = True

    def send(self) -> None:
        """Send the journal and the stores what has gathered for them."""
        if self._is_ended:
            return
        process, storage, credit = self._process, self._storage, self._credit
        if self.journal.has_gathered:
            journal = self.journal
            is_awaited = journal.is_awaited
            gathered = journal.take()
            process.send(storage.journal, to_journal.append(self.number, gathered, journal.position, is_awaited))
            messages = sum([part.messages for part in gathered])
            if messages:
                self.written += messages
                credit.spend("journal", messages)
        elif self.journal.has_sizes_later and not self._is_recording_sizes:
            self._is_recording_sizes = True
            process.spawn(self._record_sizes())
        if self.persistent.gathered is not None:
            self._send_to_store(PERSISTENT, storage.persistent, self.persistent.take())
        if self._transient.gathered is not None:
            if not self.has_transient:
                self.has_transient = True
                self.register(TRANSIENT)
            self._send_to_store(TRANSIENT, storage.transient, self._transient.take())
        direct = direct_safe = 0
        for number, level in self.by_priority.items():
            counts, before = level.direct_counts(), self._direct_of.get(number, (0, 0))
            if counts != before:
                self._direct_of[number] = counts
                direct += counts[0] - before[0]
                direct_safe += counts[1] - before[1]
        if direct:
            self.written += direct
            credit.spend("segments", direct)
            self.direct += direct
        if direct_safe:
            credit.bump("segments", direct_safe)
            self.direct_safe += direct_safe

    def send_all(self) -> None:
        """Record the sizes of segments that wait for another record to travel with, and then `send`."""
        self.journal.record_sizes()
        self.send()

    async def _record_sizes(self) -> None:
        await self._process.sleep(SIZES_WAIT_SECONDS)
        self._is_recording_sizes = False
        self.send_all()

    def _send_to_store(self, name: str, address: Address[ToMessageStore], sent: Sent | None) -> None:
        if sent is None:
            return  # nothing is left to send: what was written has been removed again
        process = self._process
        if sent.writes:
            process.send(address, to_message_store.write(self.client, sent.writes, sent.is_urgent))
            self._credit.spend(name, len(sent.writes))
        if sent.removes:
            process.send(address, to_message_store.remove(self.client, sent.removes))
        for first, last, keep in sent.ranges:
            process.send(address, to_message_store.remove_between(self.client, first, last, keep))

    # -- what is durable ----------------------------------------------------------------------------

    def hurry(self) -> Callable[[], bool]:
        """Have the journal write all records of the queue soon. Returns a function that returns whether all that was
        written so far is synced.
        """
        journal = self.journal
        journal.hurry()
        self.send()
        position, direct = journal.position, self.direct
        return lambda: journal.durable >= position and self.direct_safe >= direct

    def journal_synced(self, position: int) -> None:
        """Note that the journal has synced this queue's records up to `position`."""
        self.journal.durable = position
        # Read the position of the store here too, not only when the store reports: a body that was removed before it
        # was sent counts as durable, and the store never reports it.
        stored = self.persistent.durable
        for level in self.by_priority.values():
            level.durable(position, stored)

    def bodies_stored(self, kind: str, ids: list[bytes]) -> None:
        """Note that one of the stores has reported these bodies. No id is in both stores."""
        journal = self.journal
        is_spared = kind == "ignored"
        if journal.bodies_are_spared and not is_spared:
            journal.hurry()
        journal.bodies_are_spared = is_spared
        self._transient.answered(ids)
        self.persistent.answered(ids)
        self.journal_synced(journal.durable)
