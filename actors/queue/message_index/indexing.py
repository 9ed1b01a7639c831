"""`Indexing`: sends what an indexed queue reports to the message index, and repeats what the index lacks.

One report is under way at a time. When the feed has dropped reports, when the index is new or has lost something, and
when the queue becomes an indexed one, the queue has to catch up: it reports the messages that it has from the first
unknown number on, read from its own records as a consumer that reads by number would. It serves its clients meanwhile.
Messages that left before they could be reported are not in the index; those that were in it and left unnoticed are
marked as lost. A queue that cannot be read by number never catches up (`index_feed`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ....amqp.frames import content_properties
from ....runtime.errors import ProcessDown, ProcessTimeout
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....store.message_index.steps import LOST
from ....store.messages.message import QueuedMessage
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.range_read import SupportsRangeRead
from ...context.index_places import IndexPlaces
from ...contracts.message_index import Came, Report, to_indexer
from ...message_index.errors import NotRegistered
from ..disk.disk_loader import DiskLoader
from .index_feed import IndexFeed, count_of

if TYPE_CHECKING:
    from ....routing.rows import QueueRow
    from ....runtime.contract import Address
    from ...contracts.message_index import ToIndexer

#: Seconds that a queue waits after the index has ended, before it tries again to reach one.
RETRY_SECONDS = 1.0
#: Seconds that a queue waits for its last report when its node stops.
LAST_REPORT_SECONDS = 5.0


class Indexing:
    """The reports of the queue `row`, which is `number` in the index."""

    __slots__ = (
        "_backing",
        "_has_ended",
        "_is_registered",
        "_is_running",
        "_is_stopped",
        "_loader",
        "_number",
        "_places",
        "_process",
        "_reporting",
        "_retention",
        "_row",
        "_sources",
        "feed",
    )

    def __init__(
        self,
        process: Process,
        row: QueueRow,
        number: int,
        backing: BackingQueue,
        loader: DiskLoader,
        places: IndexPlaces,
        wall_clock: Callable[[], float],
    ) -> None:
        self._process = process
        self._row = row
        self._number = number
        self._loader = loader
        self._places = places
        self.feed = IndexFeed(wall_clock)
        self._backing = backing
        self.use_backing(backing)
        self._is_registered = self._is_running = self._is_stopped = False
        self._has_ended = Signal(process)
        self._sources: tuple[str, ...] = ()
        self._retention = 0
        #: Messages and departures in the report that the index has not answered.
        self._reporting = 0

    def use_backing(self, backing: BackingQueue) -> None:
        """Use this backing queue, which has the messages from now on.

        A queue that gets fair lanes goes on as its lane 0, where messages can still be read by number.
        """
        self.feed.next_number = None
        if isinstance(backing, SupportsRangeRead):
            self._backing = backing
            self.feed.next_number = lambda: backing.numbers().stop

    def apply(self, sources: tuple[str, ...], retention: int) -> None:
        """Take the keys of messages that come from now on from `sources`; `retention` is in ms."""
        if (sources, retention) != (self._sources, self._retention) or not self._is_registered:
            self._sources, self._retention = sources, retention
            self._is_registered = False
            self._run()

    def after_batch(self) -> None:
        if not self._is_running and not self.feed.is_empty:
            self._run()

    def _run(self) -> None:
        if not self._is_running and not self._is_stopped:
            self._is_running = True
            self._process.spawn(self._report_all())

    async def _report_all(self) -> None:
        while not self._is_stopped and not (self._is_registered and self.feed.is_empty):
            address = self._places.of(self._row.vhost)
            try:
                if address is None:
                    raise ProcessDown
                await self._report_next(address)
            except NotRegistered:
                self._is_registered = False
            except ProcessDown:
                self._is_registered = False
                if not self._is_stopped:
                    await self._process.sleep(RETRY_SECONDS)
        self._is_running = False
        self._has_ended.wake_all()

    async def _report_next(self, index: Address[ToIndexer]) -> None:
        if not self._is_registered:
            register = to_indexer.register(self._number, self._row.name, self._sources, self._retention)
            known = await self._process.ask(index, register)
            self._is_registered = True
            self.feed.repeat_from(known)
            if isinstance(self._backing, SupportsRangeRead):
                # Reports of departures may have been lost when the former index, or this node, ended.
                self.feed.rest_is_gone(LOST, self._backing.numbers().start)
        if self.feed.is_behind:
            await self._catch_up(index)
            return
        steps = self.feed.take()
        if steps:
            await self._report(index, steps)

    @property
    def lag(self) -> int:
        """How many messages and departures of the queue the index has not written."""
        return self.feed.waiting + self._reporting

    async def _report(self, index: Address[ToIndexer], steps: list[Report]) -> None:
        self._reporting = count_of(steps)
        try:
            await self._process.ask(index, to_indexer.report(self._number, steps))
        finally:
            self._reporting = 0

    async def _catch_up(self, index: Address[ToIndexer]) -> None:
        """Report the next messages of those that have to be read."""
        backing, feed = self._backing, self.feed
        assert isinstance(backing, SupportsRangeRead), "the feed of another queue never falls behind"
        lowest = backing.numbers().start
        first = max(feed.behind.start, lowest)
        if first >= feed.behind.stop:
            feed.behind, feed.is_behind = range(0), False
            # The feed appends this to the departures that wait in it, whose reasons are known and take precedence.
            feed.rest_is_gone(LOST, lowest)
            return
        since = feed.behind_since
        messages, next_number = await read_range(backing, self._loader, first, feed.behind.stop - 1)
        feed.behind = range(next_number, feed.behind.stop)
        steps = _came(messages, since)
        if steps:
            await self._report(index, steps)

    def stop(self) -> None:
        """Have everything about the queue removed from the index, because the queue is no longer indexed."""
        self._is_stopped = True
        address = self._places.of(self._row.vhost)
        if address is not None:
            self._process.send(address, to_indexer.forget(self._number))

    def queue_deleted(self) -> None:
        """Report that the queue ends. The index keeps its entries of the queue for a while."""
        self._is_stopped = True
        address = self._places.of(self._row.vhost)
        if address is not None:
            self._process.send(address, to_indexer.deleted(self._number, self.feed.take()))

    async def finish(self) -> None:
        """Wait up to `LAST_REPORT_SECONDS` until everything is reported, because the node stops."""
        with suppress(ProcessTimeout):
            await self._has_ended.wait_for(lambda: not self._is_running, LAST_REPORT_SECONDS)
        self._is_stopped = True


async def read_range(
    backing: SupportsRangeRead, loader: DiskLoader | None, first: int, last: int
) -> tuple[list[QueuedMessage], int]:
    """The next messages with numbers from `first` to `last`, and the number to go on with. They stay in the queue.

    A queue without a disk has no loader and needs none.
    """
    job = backing.prepare_range(first, last)
    while job is not None:
        assert loader is not None, "segments are on a disk"
        await loader.segments(job)
        job = backing.range_prepared(job, first, last)
    batch = backing.take_range(first, last)
    if not batch.is_complete:
        assert loader is not None, "bodies that are not in memory are on a disk"
        batch.complete(*await loader.bodies(batch.missing))
    return batch.messages, batch.next_number


def _came(messages: list[QueuedMessage], stored_at: int) -> list[Report]:
    """The messages as reports, one for each row of consecutive numbers."""
    found: list[Report] = []
    step: Came | None = None
    for message in messages:
        if step is None or message.tag != step.first + len(step.props):
            step = Came(message.tag, stored_at, [])
            found.append(step)
        step.props.append(content_properties(message.content))
    return found
