"""Length limits of a queue (AB-99 to AB-102): ready messages and body octets of ready messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store.messages.message import QueuedMessage

if TYPE_CHECKING:
    from .process import Queue

DROP_BATCH = 1000


class LengthLimit:
    """`drops_head`: what is too much is dropped from the head; `rejects_publish`: it is refused."""

    def __init__(self, queue: Queue) -> None:
        settings = queue.settings
        self.queue = queue
        self.most = settings.max_length
        self.most_bytes = settings.max_length_bytes
        self.drops_head = settings.drops_head
        self.rejects_publish = settings.rejects_publish
        self.dead_letters_refused = settings.overflow == "reject-publish-dlx"

    def exceeded_by(self, count: int, body_bytes: int) -> bool:
        """Whether so many more ready messages, of so many octets together, are too many."""
        backing = self.queue.backing
        return (
            self.most is not None
            and len(backing) + count > self.most
            or self.most_bytes is not None
            and backing.ready_bytes + body_bytes > self.most_bytes
        )

    def drop_overflow(self) -> None:
        """drop-head: removes from the head until within the limits (AB-100)."""
        backing, dead_letterer = self.queue.backing, self.queue.dead_letterer
        while len(backing) and self.exceeded_by(0, 0):
            if not backing.available(1):
                self.queue.prepare()
                if not backing.available(1):
                    return  # and here again, when the head is in memory
            over = 1 if self.most is None else max(1, len(backing) - self.most)
            if dead_letterer.is_enabled:
                deliveries = backing.fetch(min(over, DROP_BATCH), True)
                dead_letterer.publish(
                    "maxlen",
                    [
                        QueuedMessage(tag, content, origin, None, redelivered)
                        for origin, redelivered, tags, contents in deliveries
                        for tag, content in zip(tags, contents)
                    ],
                )
                for delivery in deliveries:
                    backing.ack(delivery.tags)
            else:
                dead_letterer.count("maxlen", backing.drop(min(over, DROP_BATCH), False).count)
