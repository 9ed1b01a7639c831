"""`MessageExpiry`: messages that expire at the head of a queue (AB-94 to AB-97).

The expiry of a message is fixed when the queue accepts it. A timer is set to the expiry of the head: messages behind
the head do not expire before they become the head, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Callable

from ....routing.arguments.queue_settings import QueueSettings
from ....seams import seam
from ....store.messages.message import Expiries, Origins
from ....store.queue.backing_queue import BackingQueue
from ..disk.head_read import HeadRead
from ..effects import Effects
from .dead_letters.dead_letterer import DeadLetterer

#: Messages expired before other messages of the queue's mailbox get their turn (FC-36).
EXPIRY_STEP = 400


class MessageExpiry:
    """Expires messages of one queue. `wall_clock` gives seconds since the epoch.

    All other times are microseconds since the epoch.
    """

    __slots__ = (
        "backing",
        "_dead_letterer",
        "_effects",
        "_has_done_step",
        "_has_settings",
        "_head_read",
        "_timer_at",
        "_wall_clock",
        "has_one_expiry",
        "is_needed",
        "is_uneven",
        "ttl",
    )

    def __init__(
        self,
        backing: BackingQueue,
        dead_letterer: DeadLetterer,
        head_read: HeadRead,
        effects: Effects,
        wall_clock: Callable[[], float],
    ) -> None:
        self.backing = backing
        self._dead_letterer = dead_letterer
        self._head_read = head_read
        self._effects = effects
        self._wall_clock = wall_clock
        self._has_settings = False
        #: The time to live of messages that arrive, in ms; None: only their own expiration counts.
        self.ttl: int | None = None
        #: Whether messages that are stored together must expire at one time.
        self.has_one_expiry = False
        #: Whether any message was published with an expiry.
        self.is_needed = False
        #: Whether a message may expire before the one ahead of it: then each head is examined before it is delivered.
        self.is_uneven = False
        self._timer_at: int | None = None
        #: Whether this turn has expired `EXPIRY_STEP` messages, so that it may expire no more.
        self._has_done_step = False

    def apply(self, settings: QueueSettings) -> None:
        """Use the TTL of `settings` for messages that arrive from now on; others keep the expiry that they have."""
        if not settings.is_one_line or self._has_settings and settings.message_ttl != self.ttl:
            self.is_uneven = True
        self.ttl = settings.message_ttl
        self.has_one_expiry = settings.has_one_expiry
        self._has_settings = True

    def now(self) -> int:
        return int(self._wall_clock() * 1_000_000)

    @seam("when a message expires")
    def of(self, origins: Origins) -> Expiries:
        """When messages with these origins that arrive now expire."""
        ttl = self.ttl
        if isinstance(origins, list):
            expirations = [origin.expiration for origin in origins]
            expiration = expirations[0]
            if expirations.count(expiration) < len(expirations):
                return self._of_each(expirations)
        else:
            expiration = origins.expiration
        if expiration is not None:
            self.is_uneven = True
            if ttl is None or expiration < ttl:
                ttl = expiration
        if ttl is None:
            return None
        self.is_needed = True
        return self.now() + ttl * 1000

    def _of_each(self, expirations: list[int | None]) -> Expiries:
        self.is_needed = self.is_uneven = True
        now, ttl = self.now(), self.ttl
        if ttl is None:
            return [None if expiration is None else now + expiration * 1000 for expiration in expirations]
        ttls = [ttl if expiration is None or expiration > ttl else expiration for expiration in expirations]
        if ttls.count(ttl) == len(ttls):
            return now + ttl * 1000
        return [now + each * 1000 for each in ttls]

    def expire(self) -> bool:
        """Remove expired messages from the head.

        False if an expired message may be left, so that nothing may be delivered yet: the rest waits for another turn,
        or for the disk.
        """
        now = self.now()
        total = 0
        while (head := self.backing.head_expiry()) is not None and head <= now:
            if self._has_done_step or self._dead_letterer.waiting is not None:
                self._effects.need_turn()
                return False
            cost = self._expire_available(now)
            if not cost:
                self._head_read.prepare()  # the head is on the disk
                return False
            total += cost
            if total >= EXPIRY_STEP:
                self._has_done_step = True
                self._effects.need_turn()
                return False
        return True

    def _expire_available(self, now: int) -> int:
        """Remove expired messages that are in memory, at most a step. Behind them there may be more on the disk.

        Returns how many acknowledgements would have taken as long.
        """
        if not self._dead_letterer.needs_messages:
            count = self.backing.drop_expired(now, EXPIRY_STEP)
            self._dead_letterer.count("expired", count)
            return count
        messages = self.backing.fetch_expired(now, self._dead_letterer.steps.batch)
        return self._dead_letterer.remove("expired", messages) if messages else 0

    def set_timer(self) -> None:
        """Set the timer to the expiry of the present head. Called at the end of each turn."""
        self._has_done_step = False
        backing = self.backing
        head = backing.head_expiry()
        if head is None and len(backing) and not backing.available(1):
            self._head_read.prepare()  # the expiry of a head on the disk is unknown until it is read
            head = backing.head_expiry()
        if head is not None and head <= self.now() and self._will_continue():
            head = None
        if head == self._timer_at:
            return
        self._timer_at = head
        if head is None:
            self._effects.cancel_timer("expiry")
        else:
            # The timer fires one millisecond late rather than early (AB-95).
            self._effects.set_timer("expiry", max(0.0, head / 1e6 - self._wall_clock()) + 0.001)

    def _will_continue(self) -> bool:
        """Whether the head expires without a timer: in the next turn, or when the disk has read it. A timer would fire
        each millisecond until then.
        """
        return self._effects.needs_turn or self._head_read.is_running and not self.backing.available(1)

    def timer_fired(self) -> None:
        self._timer_at = None
