"""`DeadLettersInTransit`: dead letters that queues have handed over to the journal and their targets have not taken.

A dead letter belongs to the journal from then on (`store.journal.in_transit`). When its record is on the disk the
journal sends it to its targets, some of them in each turn. A target that is down gets it when it opens again, from the
journal's memory, or from the files if the node was started anew. For all queues that are down the journal keeps
`DOWN_BYTES` of them. Further ones are dropped, as RabbitMQ drops all dead letters for a queue that is down: a queue may
stay down for ever, and memory and disk would be filled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...store.data_dir.vhost_dir import LEVEL_BITS
from ...store.journal.log_writer import LogWriter
from ..contracts.disk import to_disk_user
from .journal_queues import queue_of

if TYPE_CHECKING:
    from ...runtime.process import Process
    from ...store.journal.in_transit import HandedOver
    from ...store.journal.journal_engine import JournalEngine
    from ..contracts.disk import HandedEntry
    from .journal_queues import JournalQueues

#: Body bytes of dead letters that are kept for queues that are down. To free a full file that has some of them, the
#: journal writes them again into another file. So they must not exceed half of a file.
DOWN_BYTES = 16 << 20

#: The journal sends dead letters to at most this many targets in one turn, which takes 0.5 ms.
SENT_AT_ONCE = 128

log = logging.getLogger("warren.journal")


class DeadLettersInTransit:
    """Belongs to `process`, the journal of the virtual host `vhost`."""

    def __init__(self, process: Process, files: JournalEngine, queues: JournalQueues, vhost: str) -> None:
        self._process = process
        self._files = files
        self._queues = queues
        self._vhost = vhost
        #: Queues that are down and for which the journal has dropped a dead letter. The log names each of them once.
        self._dropping: set[int] = set()

    def send(self) -> bool:
        """Send dead letters whose records are durable to their targets, as many as one turn may. One that is down gets
        them later. Returns whether more are left, for another turn.
        """
        in_transit, durable, left = self._files.in_transit, self._files.durable, SENT_AT_ONCE
        entries: dict[int, list[HandedEntry]] = {}
        while left > 0 and (part := in_transit.send(durable, left)) is not None:
            handed, targets = part
            left -= len(targets)
            entry = (handed.origin, handed.contents, handed.body_bytes, handed.first_id, handed.is_recorded, False)
            for target in targets:
                entries.setdefault(queue_of(target), []).append(entry)
            if handed.is_recorded:
                self.forget_deleted(targets)
                if not self._queues.absent.isdisjoint(map(queue_of, targets)):
                    self._drop_for_down(handed, targets)
        for queue, of_queue in entries.items():
            address = self._queues.addresses.get(queue) or self._queues.dormant.get(queue)
            if address is not None:
                self._process.send(address, to_disk_user.handed_over(of_queue))
        return in_transit.has_unsent(durable)

    def opened(self, queue: int) -> None:
        """Send the queue, which is open now, the dead letters that were sent to it before and that it has not taken."""
        self._dropping.discard(queue)
        again = [
            (item.origin, item.contents, item.body_bytes, item.first_id, True, True)
            for item in self._files.in_transit.of(queue << LEVEL_BITS)
        ]
        if again:
            self._process.send(self._queues.addresses[queue], to_disk_user.handed_over(again))

    def forget_deleted(self, targets: Sequence[int]) -> None:
        """Forget dead letters for queues that were deleted before these arrived."""
        for target in targets:
            if queue_of(target) not in self._queues.existing:
                self._files.in_transit.forget(target)

    def _drop_for_down(self, handed: HandedOver, targets: Sequence[int]) -> None:
        """Drop dead letters for those targets that are down if more wait for such queues than the journal keeps."""
        in_transit, absent = self._files.in_transit, self._queues.absent
        waiting = sum(in_transit.bytes_of(target) for target in in_transit.targets if queue_of(target) in absent)
        if waiting <= DOWN_BYTES:
            return
        # Record the dead letters as taken, so that they are gone after a crash too, and no file is kept for them.
        writer = LogWriter()
        for target in targets:
            if queue_of(target) in absent:
                writer.take_over(target, handed.first_id, len(handed.contents))
                self._log_dropped(queue_of(target))
        for part in writer.take():
            self._files.append(part.queue, part.parts, part.records, part.next_number, part.sizes, part.is_joined)
            for taken in part.taken:
                in_transit.take(taken)

    def _log_dropped(self, queue: int) -> None:
        """Log once, until the queue opens again, that its dead letters are dropped."""
        if queue not in self._dropping:
            self._dropping.add(queue)
            log.warning(
                "vhost '%s': queue %x is down, and the journal keeps no more dead letters for such queues than %d MiB. "
                "Further ones are dropped until the queue runs again. If it cannot, delete it",
                self._vhost,
                queue,
                DOWN_BYTES >> 20,
            )
