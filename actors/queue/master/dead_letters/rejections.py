"""`Rejections`: the messages that consumers reject, or return too often."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .....amqp.dead_letter_headers import REJECTED
from .....store.queue.backing_queue import BackingQueue
from ...disk.disk_loader import PendingRead
from ...effects import Effects
from .dead_letterer import DeadLetterer


class Rejections:
    """The messages of one queue that consumers reject, or return too often.

    With a dead-letter exchange they become dead letters, and bodies that are on the disk are read for that first.
    Without one they are dropped.
    """

    __slots__ = ("backing", "_dead_letterer", "_effects", "reads")

    def __init__(self, backing: BackingQueue, dead_letterer: DeadLetterer, effects: Effects) -> None:
        self.backing = backing
        self._dead_letterer = dead_letterer
        self._effects = effects
        #: Rejections whose bodies are being read from the disk.
        self.reads = 0

    def reject(self, tags: Sequence[int], reason: str = REJECTED) -> int:
        """Reject messages; return how many acknowledgements would have taken as long."""
        if self._dead_letterer.is_enabled and self.backing.prepare_pending(tags) is not None:
            self.reads += 1
            self._effects.run(PendingRead(tags, partial(self._bodies_read, reason)))
            return 0
        return self._drop(reason, tags)

    def _bodies_read(self, reason: str, tags: Sequence[int]) -> None:
        self.reads -= 1
        self._drop(reason, tags)

    def _drop(self, reason: str, tags: Sequence[int]) -> int:
        if self._dead_letterer.is_enabled:
            messages = self.backing.pending_messages(tags)
            cost = self._dead_letterer.remove(reason, messages)
            if len(messages) < len(tags):
                # The messages that are missing here had bodies that the disk has lost. They cannot become dead letters.
                found = {message.tag for message in messages}
                self.backing.ack([tag for tag in tags if tag not in found])
            return cost
        self._dead_letterer.count(reason, len(tags))
        self._dead_letterer.report_gone(reason, tags)
        self.backing.ack(tags)
        return 0
