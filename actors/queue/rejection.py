"""What becomes of messages that a consumer rejects: dead letters if there is a way for them, else nothing. Those whose bodies are on the disk are read first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...store.messages.message import QueuedMessage
from .expiry import collect

if TYPE_CHECKING:
    from .process import Queue


class Rejection:
    """The rejected messages of one queue."""

    __slots__ = ("_holder", "_late", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._late = 0  # rejections that are read from the disk first
        self._holder: Any = None

    def reject(self, tags: Sequence[int]) -> None:
        queue = self.queue
        if (
            queue.dead_letterer.is_enabled
            and queue.durability is not None
            and queue.backing.prepare_pending(tags) is not None
        ):
            self._late += 1
            queue.spawn(self._reject_from_disk(tags))
        else:
            self._rejected(tags)

    async def _reject_from_disk(self, tags: Sequence[int]) -> None:
        assert self.queue.durability is not None, "or all is in memory"
        await self.queue.durability.loader.prepare_pending(tags)
        self._rejected(tags)
        self._late -= 1
        self._answer_holder()

    def _rejected(self, tags: Sequence[int]) -> None:
        queue = self.queue
        if queue.dead_letterer.is_enabled:
            messages: list[QueuedMessage] = []
            queue.backing.ackfold(collect, messages, tags)
            queue.dead_letterer.publish("rejected", messages)
        else:
            queue.dead_letterer.count("rejected", len(tags))
        queue.backing.ack(tags)

    def answer_when_done(self, holder: Any) -> None:
        """Answer `holder` True when no dead letter is still to come from what was rejected."""
        self._holder = holder
        self._answer_holder()

    def _answer_holder(self) -> None:
        if self._holder is not None and not self._late:
            self.queue.reply(self._holder, True)
            self._holder = None
