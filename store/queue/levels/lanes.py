"""`FairLane`: one lane of a queue with fair lanes, and the rules by which lanes are served (`fair_queue`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from ...messages.message import FetchedMessages, Origin, any_of, body_size, each_of
from ..backing_queue import BackingQueue
from .levelled_queue import outer_tags

#: Computes, from the origin and the content of a message, the value that decides which lane the message enters. It must
#: depend on nothing else, so that messages with the same value always enter the same lane.
ValueOf = Callable[[Origin, bytes], str]


@dataclass(slots=True, eq=False)
class FairLane:
    """One lane: a level of the backing queue, and its state in the rotation of the lanes."""

    number: int
    level: BackingQueue
    #: The value for which the lane was opened. Further values that share the lane by their hash are not recorded,
    #: because nothing would bound their number.
    value: str | None = None
    #: Whether messages of other values may be in it.
    is_shared: bool = False
    #: How much it may deliver in this visit, in messages or bytes.
    credit: int = 0
    #: Whether the present visit has added to the credit already.
    is_visited: bool = False
    is_in_round: bool = False


@dataclass(frozen=True, slots=True)
class FairRules:
    """How lanes are served. `weights` has the weight of a value; `*` stands for all others."""

    batch: int = 1
    weights: Mapping[str, int] = field(default_factory=dict)
    counts_bytes: bool = False
    #: How many ready messages a lane may have.
    lane_limit: int | None = None


def cost(content: bytes) -> int:
    return max(1, body_size(content))


def joined_deliveries(found: list[tuple[FairLane, FetchedMessages]]) -> list[FetchedMessages]:
    """The deliveries, with the lane in their tags. Consecutive ones of one fate become one delivery: a round over many
    lanes takes one message of each, and a delivery of one message costs the dispatch as much as one of many.
    """
    deliveries = []
    for (_, redelivered), group in groupby(found, key=lambda each: (any_of(each[1].origins)[2:], each[1].redelivered)):
        same = list(group)
        if len(same) == 1:
            lane, delivery = same[0]
            deliveries.append(delivery._replace(tags=outer_tags(lane.number, delivery.tags)))
            continue
        tags: list[int] = []
        contents: list[bytes] = []
        origins: list[Origin] = []
        for lane, delivery in same:
            tags += outer_tags(lane.number, delivery.tags)
            contents += delivery.contents
            origins += each_of(delivery.origins, len(delivery.contents))
        deliveries.append(FetchedMessages(origins, redelivered, tags, contents))
    return deliveries
