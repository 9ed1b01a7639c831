"""`Indexer`: the process of a virtual host's message index.

It is created when the first queue reports to it, or at the first search. Queues report which messages came and left,
and each waits for the answer before its next report, so the mailbox has at most one report of each queue. Nobody else
waits for the index: a message is delivered and confirmed whether or not it is indexed, and a queue whose reports pile
up drops them and reads its messages again later (`actors/queue/message_index/indexing.py`).

Reports gather for up to `COMMIT_SECONDS` and are written by another thread, at most `COMMIT_MESSAGES` in one
transaction. An index that is damaged, or whose process crashes, is opened or made anew, and the queues repeat what it
lacks.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import lmdb

from ...runtime.contract import Sender
from ...runtime.errors import ProcessTimeout
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.data_dir.vhost_dir import INDEX
from ...store.disk.damage_log import VERIFY
from ...store.disk.lmdb_check import DamagedFile, check_file
from ...store.message_index.message_index import Engine, Hit, IndexedQueue, MessageIndex, OtherEngineError, SearchResult
from ...store.message_index.steps import Put, Step
from ..context.starting import ToNewIndexer
from ..contracts.message_index import Came, FoundMessages, IndexerSettings, Report
from ..disk.disk_retry import DiskRetry
from .errors import IndexBusy, NotRegistered
from .keys import keys_of

log = logging.getLogger("warren.index")

#: Seconds that reports gather before they are written.
COMMIT_SECONDS = 0.1
#: Messages in one transaction, unless a single report has more.
COMMIT_MESSAGES = 4096
#: Seconds between two searches for messages whose retention is over.
PRUNE_SECONDS = 10.0
#: Searches that run at the same time, and the seconds that another one waits for them.
MOST_SEARCHES = 4
SEARCH_WAIT = 5.0

Result = TypeVar("Result")


class Indexer(Process):
    """See the module."""

    contract = ToNewIndexer
    reply_errors = (IndexBusy, NotRegistered)

    def __init__(self) -> None:
        super().__init__()
        self._index: MessageIndex | None = None
        self._has_opened = Signal(self)
        #: Reports that wait to be written, by queue.
        self._waiting: list[tuple[int, Sequence[Report]]] = []
        self._sources: dict[int, tuple[str, ...]] = {}
        self._is_working = self._is_closing = False
        self._has_worked = Signal(self)
        #: How many reports came, and how many of these are written.
        self._reported = self._written = 0
        self._written_at = 0
        self._searches = 0
        self._has_searched = Signal(self)

    async def on_start(self, sender: Sender, settings: IndexerSettings) -> None:
        self.settings = settings
        self._retry = DiskRetry(
            self,
            f"the message index of vhost '{settings.vhost}'",
            None,
            "Messages that come and go are not in the index",
        )
        created_at = int(self.wall_clock() * 1e6)
        index = await self.run_blocking(
            _opened, f"{settings.path}/{INDEX}", settings.max_bytes, created_at, self.random_bytes(16), settings.engine
        )
        now = self._now()
        for number, queue in index.queues.items():
            if number not in settings.queues and not queue.deleted_at:
                queue.deleted_at = now
                await self.run_blocking(index.put_queue, number)
        self._index = index
        self._has_opened.wake_all()
        self.start_timer(PRUNE_SECONDS, "prune")

    def _now(self) -> int:
        return int(self.wall_clock() * 1000)

    async def _opened_index(self) -> MessageIndex:
        await self._has_opened.wait_for(lambda: self._index is not None)
        assert self._index is not None
        return self._index

    # -- queues

    async def on_register(self, sender: Sender, queue: int, name: str, sources: tuple[str, ...], retention: int) -> int:
        index = await self._opened_index()
        # A queue that is indexed again after `forget` waits here until everything from its earlier reports is removed.
        while (known := index.queues.get(queue)) is not None and known.is_forgotten:
            self._work_on()
            await self._has_worked.wait()
        self._sources[queue] = sources
        if known is None:
            known = index.queues[queue] = IndexedQueue(name, 0, retention)
        known.retention = retention
        return known.next_number

    async def on_report(self, sender: Sender, queue: int, steps: Sequence[Report]) -> bool:
        await self._opened_index()
        if queue not in self._sources:
            raise NotRegistered
        self._waiting.append((queue, steps))
        self._reported += 1
        number = self._reported
        self._work_on()
        await self._has_worked.wait_for(lambda: self._written >= number)
        return True

    async def on_forget(self, sender: Sender, queue: int) -> None:
        index = await self._opened_index()
        known = index.queues.get(queue)
        if known is not None:
            known.is_forgotten = True
            await self._write(index.put_queue, queue)
            self._work_on()

    async def on_deleted(self, sender: Sender, queue: int, steps: Sequence[Report]) -> None:
        index = await self._opened_index()
        if steps:
            self._waiting.append((queue, steps))
            self._reported += 1
            self._work_on()
        known = index.queues.get(queue)
        if known is not None and not known.deleted_at:
            known.deleted_at = self._now()
            await self._write(index.put_queue, queue)

    # -- writing

    def on_timer(self, payload: str) -> None:
        self.start_timer(PRUNE_SECONDS, "prune")
        self._work_on()

    def _work_on(self) -> None:
        if not self._is_working and not self._is_closing:
            self._is_working = True
            self.spawn(self._work())

    async def _work(self) -> None:
        """Write what was reported, and remove what is too old, until there is nothing left to do."""
        index = await self._opened_index()
        if sum(_count(steps) for _, steps in self._waiting) < COMMIT_MESSAGES:
            await self.sleep(COMMIT_SECONDS)
        has_more = True
        while self._waiting or has_more and not self._is_closing:
            batch, count = [], 0
            while self._waiting and count < COMMIT_MESSAGES:
                queue, steps = self._waiting.pop(0)
                batch.append((queue, steps, self._sources.get(queue, ())))
                count += _count(steps)
            if batch:
                await self._write(_write, index, batch)
                self._written_at = self._now()
                self._written += len(batch)
                self._has_worked.wake_all()
            has_more = await self._write(index.prune, self._now())
            self._has_worked.wake_all()
        self._is_working = False
        self._has_worked.wake_all()

    async def _write(self, job: Callable[..., Result], *args: object) -> Result:
        """Run a job that writes, again and again while the disk refuses it."""
        return await self._retry.run(_refusing, job, args, is_given_up=lambda: self._is_closing)

    # -- searching

    async def on_find(
        self, sender: Sender, names: list[str] | None, key: bytes, begin: int, end: int, most: int
    ) -> FoundMessages:
        index = await self._opened_index()
        numbers = [
            number
            for number, queue in index.queues.items()
            if not queue.is_forgotten and (names is None or queue.name in names)
        ]
        return self._answer_of(index, await self._search(index.find, numbers, key, begin, end, most))

    async def on_find_position(self, sender: Sender, position: int) -> FoundMessages:
        index = await self._opened_index()
        return self._answer_of(index, await self._search(_at_position, index, position))

    async def _search(self, job: Callable[..., SearchResult], *args: object) -> SearchResult:
        try:
            await self._has_searched.wait_for(lambda: self._searches < MOST_SEARCHES, SEARCH_WAIT)
        except ProcessTimeout:
            raise IndexBusy(
                f"{MOST_SEARCHES} searches of vhost '{self.settings.vhost}' are under way; try again in a moment"
            ) from None
        self._searches += 1
        try:
            return await self.run_blocking(job, *args)
        finally:
            self._searches -= 1
            self._has_searched.wake_all()

    def _answer_of(self, index: MessageIndex, found: SearchResult) -> FoundMessages:
        hits: list[Hit] = []
        queues = {}
        for hit in found.hits:
            queue = index.queues.get(hit.queue)
            if queue is None or queue.is_forgotten:
                continue
            if queue.deleted_at and not hit.reason:
                hit = hit._replace(reason="deleted", gone_at=queue.deleted_at)
            hits.append(hit)
            queues[hit.queue] = (queue.name, self._sources.get(hit.queue, ()))
        return FoundMessages(hits, found.is_truncated, queues, self._written_at, index.position)

    # -- the end

    async def on_close(self, sender: Sender) -> bool:
        index = await self._opened_index()
        self._is_closing = True
        await self._has_worked.wait_for(lambda: not self._is_working)
        await self._has_searched.wait_for(lambda: not self._searches)
        await self.run_blocking(index.close)
        self._index = None
        return True


def _opened(path: str, max_bytes: int, created_at: int, secret: bytes, engine: Engine) -> MessageIndex:
    """The index at `path`; a damaged one is replaced by a new one. Waits for the disk."""
    file = f"{path}/data.mdb"
    try:
        # LMDB would kill the process at a damaged file.
        if os.path.exists(file):
            check_file(file)
        return MessageIndex(path, max_bytes, created_at, secret, engine)
    except lmdb.DiskError:
        raise  # the disk is full; the environment is undamaged
    except OtherEngineError as error:
        log.warning(
            "the message index in %s is made anew: %s. The queues report the messages that they have now; what became "
            "of others can no longer be found",
            path,
            error,
        )
    except (DamagedFile, lmdb.Error, ValueError) as error:
        log.warning(
            "%s is damaged: %s. A new message index is made. The queues report the messages that they have now; what "
            "became of others can no longer be found. %s",
            path,
            error,
            VERIFY,
        )
    shutil.rmtree(path)
    return MessageIndex(path, max_bytes, created_at, secret, engine)


def _refusing(job: Callable[..., Result], args: tuple[object, ...]) -> Result:
    """Run a job. An error of LMDB, such as that of a full disk, becomes an OSError, which `DiskRetry` handles."""
    try:
        return job(*args)
    except lmdb.Error as error:
        raise OSError(str(error)) from error


def _write(index: MessageIndex, batch: Iterable[tuple[int, Sequence[Report], tuple[str, ...]]]) -> None:
    """Take the keys out of the reported messages, and write everything. Waits for the disk."""
    index.write([(queue, [_keyed(step, sources) for step in steps]) for queue, steps, sources in batch])


def _keyed(step: Report, sources: tuple[str, ...]) -> Step:
    if not isinstance(step, Came):
        return step
    return Put(step.first, step.stored_at, [keys_of(props, sources) if sources else [] for props in step.props])


def _at_position(index: MessageIndex, position: int) -> SearchResult:
    hit = index.at_position(position)
    return SearchResult([] if hit is None else [hit], False)


def _count(steps: Sequence[Report]) -> int:
    return sum(len(step.props) for step in steps if isinstance(step, Came))
