"""`LaneSource`: a backing queue that stores the messages of lanes, and what `FairQueue` knows about them.

The messages of all lanes are in one backing queue, level 0. A queue that an earlier version has written has further
levels, because each lane was a level of its own then: they are sources too until they are empty, and get no message.

Lanes have the **keys** of messages: the number in level 0, and for older levels a negative one, so that their messages
are before all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from ...messages.message import FetchedMessages, QueuedMessage, each_of
from ..lane_level import LaneLevel
from .lane_numbers import NEVER
from .lanes import FairLane
from .level_tags import LEVEL_SHIFT, MOST_LEVELS

#: Bits of a key that are the number, if the level is not 0. No queue gives so many numbers.
KEY_SHIFT = 48

#: Ready messages that a lazy queue, and one that sorts what the disk has, keeps in memory, and how many more there may
#: be before it removes the others. These are more than `READ_AHEAD`, so that messages that were read stay for a while.
KEPT_IN_MEMORY = 4096
KEPT_BESIDES = 1024


class LaneSource:
    """See the module. `number` is that of the level.

    unacked    by number: the lane of a message that is unacknowledged, the size of its body, and its expiry. None if
               it was delivered before the queue had lanes
    returned   numbers of messages that consumers have had and returned. They are noted here because a return
               changes nothing in the level, to which messages in lanes are pending all the time
    ready      how many messages in lanes are ready
    purged     how many of the messages on the disk only have left their lanes, and are to be removed
    """

    __slots__ = ("base", "key_base", "level", "purged", "ready", "returned", "unacked")

    def __init__(self, number: int, level: LaneLevel) -> None:
        self.level = level
        self.base = number << LEVEL_SHIFT
        self.key_base = (number - MOST_LEVELS) << KEY_SHIFT if number else 0
        self.unacked: dict[int, tuple[FairLane, int, int] | None] = dict.fromkeys(level.pending_numbers())
        self.returned: set[int] = set()
        self.ready = 0
        self.purged = 0
        level.begin_lanes(self.unacked.keys())

    def unacked_in(self, tags: Sequence[int]) -> list[int]:
        """The numbers of this level's unacknowledged messages among these tags; others may be of other levels."""
        base, unacked = self.base, self.unacked
        if isinstance(tags, range) and len(tags) > len(unacked):
            # A multiple ack may span levels.
            return [number for number in sorted(unacked) if base + number in tags]
        if base:
            return [tag - base for tag in tags if tag - base in unacked]
        return [tag for tag in tags if tag in unacked]

    def pending(self) -> tuple[int, int]:
        """How many messages are unacknowledged, and how many bytes the bodies of these and of the ready messages in
        lanes have.
        """
        totals, (on_disk, bytes_on_disk) = self.level.totals(), self.level.on_disk
        return totals.pending - self.ready + on_disk - self.purged, totals.pending_bytes + bytes_on_disk

    def hand_out(self, lane: FairLane, numbers: range) -> tuple[list[FetchedMessages], int] | None:
        """Deliver consecutive messages that have left the lane, at the cost of a few slices. Returns them and the bytes
        of their bodies; None if each must be found by itself.
        """
        runs = None if self.base or self.returned else self.level.in_a_row(numbers)
        if runs is None:
            return None
        body_bytes = 0
        for delivery, sizes, expiries in runs:
            count = len(delivery.contents)
            if isinstance(sizes, int) and not isinstance(expiries, list):
                self.unacked.update(dict.fromkeys(delivery.tags, (lane, sizes, expiries or NEVER)))
                body_bytes += sizes * count
            else:
                each = (sizes,) * count if isinstance(sizes, int) else sizes
                known = [expiry or NEVER for expiry in each_of(expiries, count)]
                self.unacked.update(zip(delivery.tags, zip(repeat(lane), each, known)))
                body_bytes += sum(each)
        lane.unacked += len(numbers)
        return [delivery for delivery, _, _ in runs], body_bytes

    def outer(self, messages: list[QueuedMessage]) -> list[QueuedMessage]:
        """The messages with the tags and flags that the process of the queue sees."""
        base, returned = self.base, self.returned
        if not base and not returned:
            return messages
        return [
            message._replace(tag=base + message.tag, redelivered=message.redelivered or message.tag in returned)
            for message in messages
        ]

    def keep_few(self) -> None:
        """Remove most ready messages from memory."""
        in_memory = self.ready - self.level.on_disk[0] + self.purged
        if in_memory > KEPT_IN_MEMORY + KEPT_BESIDES:
            self.level.keep_in_lanes(KEPT_IN_MEMORY)


def level_of(key: int) -> int:
    """The level in which the message with this key is."""
    return 0 if key >= 0 else (key >> KEY_SHIFT) + MOST_LEVELS


def compact(numbers: list[int]) -> Sequence[int]:
    """The same numbers as a range if they are consecutive."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        span = range(numbers[0], numbers[-1] + 1)
        if list(span) == numbers:
            return span
    return numbers
