"""What a queue reports to the message index, in order: messages that it got, and messages that left it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: How messages leave a queue. The position of a reason in this tuple, from 1 on, is its number on the disk.
REASONS = ("acked", "expired", "purged", "dead-lettered", "dropped", "deleted", "lost")

#: Gone without a report: the index was behind when the message left, or the broker crashed.
LOST = "lost"


class Put(NamedTuple):
    """Messages with consecutive numbers from `first` on came into the queue at `stored_at`, in ms since the epoch."""

    first: int
    stored_at: int
    #: The keys of each message.
    keys: Sequence[Sequence[bytes]]


class Gone(NamedTuple):
    """The messages with these numbers have left the queue at `at`, in ms since the epoch."""

    reason: str
    #: More about the reason for people, such as where a dead letter went.
    detail: str
    at: int
    numbers: Sequence[int]


class Rest(NamedTuple):
    """Every message put before this step, with a number below `stop` and not in `kept`, has left the queue by now."""

    reason: str
    at: int
    stop: int
    kept: frozenset[int]


Step = Put | Gone | Rest
