"""`FairLane`: one lane of a queue with fair lanes, and the rules by which lanes are served (`fair_queue`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...messages.message import Origin, Origins, each_of
from .lane_numbers import NEVER, LaneNumbers

#: Computes, from the origin and the content of a message, the value that decides which lane the message enters. It must
#: depend on nothing else, so that messages with the same value always enter the same lane.
ValueOf = Callable[[Origin, bytes], str]


@dataclass(slots=True, eq=False)
class FairLane:
    """One lane. The queue forgets it when it has no message, ready or unacknowledged."""

    #: Distinguishes the lanes that there are at present; values without a lane of their own find one by it.
    place: int
    #: The value for which the lane was opened. Further values that share the lane by their hash are not recorded,
    #: because nothing would bound their number.
    value: str
    #: The ready messages, by their keys (`lane_source`).
    numbers: LaneNumbers = field(default_factory=LaneNumbers)
    #: How many messages are unacknowledged.
    unacked: int = 0
    #: Under which limits of the number of lanes (`LaneTable`) values came to share it. Empty: no other value is in it.
    shared_since: tuple[int, ...] = ()
    #: How much it may deliver in this visit, in messages or bytes.
    credit: int = 0
    #: Whether the present visit has added to the credit already.
    is_visited: bool = False
    #: The expiry in the entry that `LaneExpiries` has for this lane, no later than that of the lane's head; `NEVER` if
    #: there is no entry.
    known_expiry: int = NEVER


@dataclass(frozen=True, slots=True)
class FairRules:
    """How lanes are served. `weights` has the weight of a value; `*` stands for all others."""

    batch: int = 1
    weights: Mapping[str, int] = field(default_factory=dict)
    counts_bytes: bool = False
    #: How many ready messages a lane may have.
    lane_limit: int | None = None


def same_value(value_of: ValueOf, origins: Origins, contents: Sequence[bytes]) -> int:
    """How many of these messages, from the first on, have the value of the first one."""
    values = map(value_of, each_of(origins, len(contents)), contents)
    first = next(values)
    count = 1
    for value in values:
        if value != first:
            break
        count += 1
    return count


def no_value(origin: Origin, content: bytes) -> str:
    """The value by which the messages of a queue that has lost its lanes share a lane."""
    return ""
