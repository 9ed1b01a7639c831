"""When messages of a queue expire (AB-94 to AB-97), and when the queue itself does (AB-93)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...store.messages.message import Origin, QueuedMessage

if TYPE_CHECKING:
    from .process import Queue

EXPIRY_STEP = 400  # messages expired before other work gets its turn (FC-36)


class MessageExpiry:
    """Expires messages at the head of the queue, by a timer that is set to the head's time."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.is_needed = False  # some message was published with an expiry
        # A later message may expire before an earlier one, so each must be looked at when it becomes the head.
        self.is_uneven = queue.settings.max_priority is not None
        self._timer: Any = None
        self._timer_at: int | None = None  # microseconds since the epoch

    def now(self) -> int:
        """Microseconds since the epoch."""
        return int(self.queue.wall_clock() * 1_000_000)

    def of(self, origin: Origin) -> int | None:
        """When a message that arrives now expires; None: never."""
        ttl = self.queue.settings.message_ttl
        if origin.expiration is not None:
            self.is_uneven = True
            if ttl is None or origin.expiration < ttl:
                ttl = origin.expiration
        if ttl is None:
            return None
        self.is_needed = True
        return self.now() + ttl * 1000

    def expire(self) -> bool:
        """Removes expired messages from the head. False if that was a step of a longer stretch: the rest follows in a message of the queue to itself."""
        queue, now = self.queue, self.now()
        total = 0
        while (head := queue.backing.head_expiry()) is not None and head <= now:
            count = self._expire_some(now)
            if not count:
                queue.prepare()  # the head is on disk
                return False
            total += count
            if total >= EXPIRY_STEP:
                queue.send(queue.myAddress, ("expire_more",))
                return False
        return True

    def _expire_some(self, now: int) -> int:
        """As many as are at hand: behind them there may be more."""
        queue = self.queue

        def expired(expiry: int | None, size: int) -> bool:
            return expiry is not None and expiry <= now

        if not queue.dead_letterer.is_enabled:
            count = queue.backing.dropwhile(expired, EXPIRY_STEP).count
            queue.dead_letterer.count("expired", count)
            return count
        messages: list[QueuedMessage] = []
        queue.backing.fetchwhile(expired, collect, messages, EXPIRY_STEP)
        queue.dead_letterer.publish("expired", messages)
        queue.backing.ack([message.tag for message in messages])
        return len(messages)

    def set_timer(self) -> None:
        """Sets the timer to the head that is there now."""
        queue = self.queue
        head = queue.backing.head_expiry()
        if head is None and not queue.backing.is_empty() and not queue.backing.available(1):
            queue.prepare()  # nobody knows when the head expires before it is read
            head = queue.backing.head_expiry()
        if head == self._timer_at:
            return
        if self._timer is not None:
            queue.cancel_timer(self._timer)
            self._timer = None
        self._timer_at = head
        if head is not None:
            # One millisecond late rather than early (AB-95).
            self._timer = queue.start_timer(max(0.0, head / 1e6 - queue.wall_clock()) + 0.001, "expiry")

    def timer_fired(self) -> None:
        self._timer = self._timer_at = None


class QueueExpiry:
    """`x-expires`: a queue that nobody uses for so long ends. Consuming, reading, getting and declaring are uses, publishing is not."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._seconds = None if queue.settings.expires is None else queue.settings.expires / 1000
        self._timer: Any = None
        self._since = 0.0

    def restart(self) -> None:
        """A use, or the last consumer's leaving, begins it anew. One timer serves many uses: it looks how long ago the last was."""
        if self._seconds is not None:
            self._since = self.queue.now()
            if self._timer is None and not self.queue.is_in_use:
                self._timer = self.queue.start_timer(self._seconds + 0.001, "queue_expiry")

    def suspend(self) -> None:
        """There is a consumer."""
        if self._timer is not None:
            self.queue.cancel_timer(self._timer)
            self._timer = None

    def timer_fired(self) -> bool:
        """Whether the queue is to end."""
        self._timer = None
        if self.queue.is_in_use or self._seconds is None:
            return False
        left = self._since + self._seconds - self.queue.now()
        if left > 0:
            self._timer = self.queue.start_timer(left + 0.001, "queue_expiry")
        return left <= 0


def collect(message: QueuedMessage, messages: list[QueuedMessage]) -> list[QueuedMessage]:
    messages.append(message)
    return messages
