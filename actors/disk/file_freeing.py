"""`FileFreeing`: deletes the files of the journal that are no longer needed.

When a file is full and closed, every queue is asked to flush its entries to segments (`flush_synced`), and then the
file is deleted. The same happens to a file of more than `IDLE_BYTES` when nobody has written for a second, so that an
idle journal holds little disk. A queue that is down cannot be asked: the journal itself writes that queue's records
from the files into its segments, so that one queue that crashed for good does not keep the journal of all the others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...runtime.errors import ProcessDown
from ..contracts.disk import to_disk_user
from .disk_retry import RETRY_SECONDS

if TYPE_CHECKING:
    from ...runtime.process import Process
    from ...store.journal.journal_engine import JournalEngine
    from .journal_queues import JournalQueues

#: Seconds without an append after which the current file is freed, if it has more than `IDLE_BYTES`.
IDLE_SECONDS = 1.0
IDLE_BYTES = 1 << 20

#: The most bytes of dead letters in transit that are written again so that the file of an idle journal can be freed;
#: half a file if that is less. If there are more, these dead letters wait for queues that are down, and the journal
#: keeps the file until it is full or these queues run: writing them again would make the next file large enough to be
#: freed at once, and so on for ever.
REPEATED_BYTES = IDLE_BYTES // 2

#: The payloads of timers.
RETRY, IDLE = "free", "idle"

log = logging.getLogger("warren.journal")


class FileFreeing:
    """Belongs to `process`, the journal.

    flush_absent   writes the records of queues that are down into their segments, and returns those queues
    report         reports to a queue up to which position its records are on the disk
    retired        is called when files can be deleted: the next commit does it
    """

    def __init__(
        self,
        process: Process,
        files: JournalEngine,
        queues: JournalQueues,
        file_limit: int,
        flush_absent: Callable[[], Awaitable[set[int]]],
        report: Callable[[int], None],
        retired: Callable[[], None],
    ) -> None:
        self._process = process
        self._files = files
        self._queues = queues
        self._file_limit = file_limit
        self._flush_absent = flush_absent
        self._report = report
        self._retired = retired
        #: Whether queues flush their records now.
        self.is_running = False
        self._is_paused = False
        self._has_ended = False
        #: The position when the idle timer was started; None if it is not running.
        self.idle_since: int | None = None

    def committed(self) -> None:
        """Handle the end of a commit. Called if there are closed files, or if no idle timer runs."""
        files = self._files
        if files.closed_files:
            self.begin(files.current, self._file_limit)
        if self.idle_since is None:
            self._start_idle_timer()

    def begin(self, before: int, repeated: int) -> None:
        """Free the files with numbers lower than `before`, unless more bytes than `repeated` must be written again."""
        if self.is_running or self._is_paused or self._has_ended:
            return
        if self._files.in_transit_before(before) > min(repeated, self._file_limit // 2):
            self._pause()
            return
        self.is_running = True
        self._process.spawn(self._free(before))

    def end(self) -> None:
        """Begin no more: the journal is about to end."""
        self._has_ended = True

    def retry(self) -> None:
        """Handle the timer `RETRY`: files may be freed again."""
        self._is_paused = False

    def idle(self, is_committing: bool) -> None:
        """Handle the timer `IDLE`: free the current file if nothing was appended since the timer was started."""
        files = self._files
        was_idle, self.idle_since = self.idle_since == files.position, None
        if not was_idle:
            self._start_idle_timer()
        elif files.current_bytes > IDLE_BYTES and not is_committing:
            self.begin(files.rotate(), REPEATED_BYTES)

    def _start_idle_timer(self) -> None:
        self.idle_since = self._files.position
        self._process.start_timer(IDLE_SECONDS, IDLE)

    def _pause(self) -> None:
        self._is_paused = True
        self._process.start_timer(RETRY_SECONDS, RETRY)

    async def _free(self, before: int) -> None:
        """Free the files with numbers lower than `before`, once every queue has flushed its records in them."""
        queues, process = self._queues, self._process
        unflushed = queues.unflushed()
        try:
            # A queue that is down in one round may be open in the next one, and has to be asked then.
            while unflushed:
                running = {}
                for queue, address in queues.addresses.items():
                    if queue in unflushed:
                        # A flush leaves out what depends on records that the queue takes for unwritten, such as dead
                        # letters that it has taken. These records are about to be deleted, so the report goes first.
                        self._report(queue)
                        running[queue] = process.ask(address, to_disk_user.flush_synced())
                for answer in running.values():
                    await answer
                unflushed -= running.keys()
                if not unflushed.isdisjoint(queues.absent):
                    unflushed -= await self._flush_absent()
                unflushed &= queues.unflushed()
        except (ProcessDown, OSError) as error:
            # The files are still needed: a queue that crashed starts again from them or is down in the next attempt.
            log.debug("files of the journal before %d stay for now: %s", before, error)
            self._pause()
        else:
            self._files.retire(before)
            self._retired()
        self.is_running = False
