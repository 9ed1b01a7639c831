"""`MessageExpiry`: messages that expire at the head of a queue (AB-94 to AB-97).

The expiry of a message is fixed when the queue accepts it. A timer is set to the expiry of the head: messages behind
the head do not expire before they become the head, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Callable

from ...routing.arguments import QueueSettings
from ...runtime.process import Process
from ...seams import seam
from ...store.messages.message import Origin
from ...store.queue.backing_queue import BackingQueue
from .dead_letterer import DeadLetterer

#: Messages expired before other messages of the queue's mailbox get their turn (FC-36).
EXPIRY_STEP = 400


class MessageExpiry:
    """Expires messages of one queue.

    `prepare` has more of the head read from the disk. `expire_later` has `expire` called again in another turn.
    All times are microseconds since the epoch.
    """

    __slots__ = (
        "_backing",
        "_dead_letterer",
        "_expire_later",
        "_prepare",
        "_process",
        "_timer",
        "_timer_at",
        "_ttl",
        "is_needed",
        "is_uneven",
    )

    def __init__(
        self,
        process: Process,
        settings: QueueSettings,
        backing: BackingQueue,
        dead_letterer: DeadLetterer,
        prepare: Callable[[], None],
        expire_later: Callable[[], None],
    ) -> None:
        self._process = process
        self._ttl = settings.message_ttl
        self._backing = backing
        self._dead_letterer = dead_letterer
        self._prepare = prepare
        self._expire_later = expire_later
        #: Some message was published with an expiry.
        self.is_needed = False
        #: A message may expire before the one ahead of it, so each head must be examined before it is delivered.
        self.is_uneven = settings.max_priority is not None
        self._timer: int | None = None
        self._timer_at: int | None = None

    def now(self) -> int:
        return int(self._process.wall_clock() * 1_000_000)

    @seam("when a message expires")
    def of(self, origin: Origin) -> int | None:
        """When a message that arrives now expires; None: never."""
        ttl = self._ttl
        if origin.expiration is not None:
            self.is_uneven = True
            if ttl is None or origin.expiration < ttl:
                ttl = origin.expiration
        if ttl is None:
            return None
        self.is_needed = True
        return self.now() + ttl * 1000

    def expire(self) -> bool:
        """Remove expired messages from the head.

        False if an expired message may be left, so that nothing may be delivered yet: the rest waits for the queue's
        next turn (FC-36), or for the disk.
        """
        now = self.now()
        total = 0
        while (head := self._backing.head_expiry()) is not None and head <= now:
            count = self._expire_available(now)
            if not count:
                self._prepare()  # the head is on the disk
                return False
            total += count
            if total >= EXPIRY_STEP:
                self._expire_later()
                return False
        return True

    def _expire_available(self, now: int) -> int:
        """Remove expired messages that are in memory, at most a step. Behind them there may be more on the disk."""

        if not self._dead_letterer.is_enabled:
            count = self._backing.drop_expired(now, EXPIRY_STEP)
            self._dead_letterer.count("expired", count)
            return count
        messages = self._backing.fetch_expired(now, EXPIRY_STEP)
        self._dead_letterer.publish("expired", messages)
        self._backing.ack([message.tag for message in messages])
        return len(messages)

    def set_timer(self) -> None:
        """Set the timer to the expiry of the present head."""
        backing, process = self._backing, self._process
        head = backing.head_expiry()
        if head is None and not backing.is_empty() and not backing.available(1):
            self._prepare()  # the expiry of a head on the disk is unknown until it is read
            head = backing.head_expiry()
        if head == self._timer_at:
            return
        if self._timer is not None:
            process.cancel_timer(self._timer)
            self._timer = None
        self._timer_at = head
        if head is not None:
            # One millisecond late rather than early (AB-95).
            self._timer = process.start_timer(max(0.0, head / 1e6 - process.wall_clock()) + 0.001, "expiry")

    def timer_fired(self) -> None:
        self._timer = self._timer_at = None
