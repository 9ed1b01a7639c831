"""`LengthLimit`: limits on the ready messages of a queue and on their body bytes (AB-99 to AB-102)."""

from __future__ import annotations

from ....routing.arguments.queue_settings import QueueSettings
from ....runtime.turn_work import TurnWork
from ....store.messages.message import QueuedMessage, each_of
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.levels.fair_queue import FairQueue
from ..arrivals import Arrival
from ..disk.head_read import HeadRead
from ..effects import Effects
from .dead_letters.dead_letterer import DeadLetterer

#: Messages dropped from the head at a time.
DROP_BATCH = 400

#: How many messages a turn may drop from the head with one call instead of settling one. The call itself, which may
#: drop a single message, counts as much as settling one.
DROPPED_AS_ONE = 2


class LengthLimit:
    """The limits of one queue."""

    __slots__ = (
        "backing",
        "_dead_letterer",
        "_effects",
        "_head_read",
        "_lane_limit",
        "_max_bytes",
        "_max_length",
        "_work",
        "dead_letters_refused",
        "drops_head",
        "is_behind",
        "rejects_publish",
    )

    def __init__(
        self,
        backing: BackingQueue,
        dead_letterer: DeadLetterer,
        head_read: HeadRead,
        effects: Effects,
        work: TurnWork,
    ) -> None:
        self.backing = backing
        self._work = work
        self._effects = effects
        self._dead_letterer = dead_letterer
        self._head_read = head_read
        self._max_length: int | None = None
        self._max_bytes: int | None = None
        #: Ready messages that each lane of a queue with fair lanes may have (QP-66).
        self._lane_limit: int | None = None
        #: Whether the oldest messages are dropped when a limit is exceeded.
        self.drops_head = False
        #: Whether more messages are to be dropped than one turn may drop.
        self.is_behind = False
        #: Whether a publish that would exceed a limit is refused.
        self.rejects_publish = False
        #: Whether a refused publish becomes a dead letter.
        self.dead_letters_refused = False

    @property
    def limits_lanes(self) -> bool:
        """Whether each lane of a queue with fair lanes has a limit."""
        return self._lane_limit is not None

    def apply(self, settings: QueueSettings) -> None:
        """Use these limits from now on. `drop_overflow` drops what they no longer allow."""
        self._max_length = settings.max_length
        self._max_bytes = settings.max_length_bytes
        self._lane_limit = settings.fair_lane_limit if settings.fair_by is not None else None
        self.drops_head = settings.drops_head
        self.rejects_publish = settings.rejects_publish
        self.dead_letters_refused = settings.overflow == "reject-publish-dlx"

    def is_exceeded_by(self, count: int, body_bytes: int) -> bool:
        """Whether `count` more ready messages with `body_bytes` in all would exceed a limit of the whole queue."""
        backing = self.backing
        return (
            self._max_length is not None
            and len(backing) + count > self._max_length
            or self._max_bytes is not None
            and backing.totals().ready_bytes + body_bytes > self._max_bytes
        )

    def refuses(self, arrival: Arrival, count: int, body_bytes: int) -> bool:
        """Whether `count` messages of the arrival, with `body_bytes` in all, would exceed a limit."""
        if self.is_exceeded_by(count, body_bytes):
            return True
        backing, limit = self.backing, self._lane_limit
        if limit is None or not isinstance(backing, FairQueue):
            return False
        return backing.lane_length(arrival.origins, arrival.contents) + count > limit

    def _excess(self) -> int:
        """How many messages must be dropped at least; 0 if all limits are kept."""
        backing = self.backing
        excess = backing.overflow() if isinstance(backing, FairQueue) else 0
        if self.is_exceeded_by(0, 0):
            excess = max(excess, 1, 0 if self._max_length is None else len(backing) - self._max_length)
        return excess

    def drop_overflow(self) -> None:
        """Drop messages until the queue is within its limits (AB-100).

        A publish with a large body and a change of the limits may make millions of messages too many. These are dropped
        in steps: `is_behind` is then set, and the role calls this again in other turns, and delivers nothing before the
        last step.
        """
        backing, dead_letterer, effects, work = self.backing, self._dead_letterer, self._effects, self._work
        self.is_behind = False
        while len(backing) and (excess := self._excess()):
            if work.left <= 0 or dead_letterer.waiting is not None:
                self.is_behind = True
                effects.need_turn()
                return
            if not backing.droppable():
                self._head_read.prepare()
                if not backing.droppable():
                    return  # the role calls this again when the head is in memory
            if dead_letterer.needs_messages:
                deliveries = backing.fetch_dropped(min(excess, dead_letterer.steps.batch))
                cost = dead_letterer.remove(
                    "maxlen",
                    [
                        QueuedMessage(tag, content, origin, None, redelivered)
                        for origins, redelivered, tags, contents in deliveries
                        for tag, content, origin in zip(tags, contents, each_of(origins, len(contents)))
                    ],
                )
            else:
                dropped = backing.drop(min(excess, DROP_BATCH))
                dead_letterer.count("maxlen", dropped)
                cost = dropped // DROPPED_AS_ONE
            work.left -= 1 + cost
