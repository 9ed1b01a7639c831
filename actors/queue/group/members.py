"""`GroupMember`: a queue whose messages a group delivers, and `Holdings`: which ack tags their messages have.

A group is to its members what a channel with a channel-wide prefetch is to its queues: a member that has messages asks
for a grant (`limiter_request`), which is its offer, and delivers or returns what the group grants. For each message
that it grants the group has a place at a consumer already, so a message never waits in the group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from ....seams import seam

if TYPE_CHECKING:
    from ....routing.rows import QueueRow
    from ....runtime.contract import Address
    from ...contracts.queue import ToQueue
    from ..consumers.consumer import Consumer

    #: A consumer, and how many messages it has a place for.
    Place = tuple[Consumer, int]


@dataclass(slots=True, eq=False)
class GroupMember:
    """One member, as long as its process lives at one address."""

    row: QueueRow
    weight: int = 1
    #: Whether the group is one of its consumers.
    is_joined: bool = False
    #: How often the group has begun to consume from it.
    joins: int = 0
    #: How many questions it has not answered yet. Once it has answered all of them, the group has its offer, if it has
    #: messages to offer.
    questions: int = 0
    #: Whether its process has ended, so that nothing must be sent there.
    is_gone: bool = False
    #: How many messages it offers. It makes no other offer before this one is granted.
    offered: int = 0
    #: Seconds of a monotonic clock: since when its offer stands.
    offered_since: float = 0.0
    #: Messages that were granted and neither delivered nor returned.
    granted: int = 0
    #: The consumers that have a place for each of these, in order.
    places: deque[Place] = field(default_factory=deque)

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def address(self) -> Address[ToQueue]:
        return self.row.address

    @property
    def is_awaited(self) -> bool:
        """Whether it may have messages that the group was not offered yet."""
        return self.is_joined and (self.granted > 0 or self.questions > 0)

    def take_places(self, count: int) -> list[Place]:
        """Take the consumers of the next `count` messages that were granted."""
        places = self.places
        return _taken(count, places, places.popleft, places.appendleft)

    def give_up_places(self, count: int) -> list[Place]:
        """Take the consumers of the last `count` messages that were granted, which do not come."""
        places = self.places
        return _taken(count, places, places.pop, places.append)


def _taken(
    count: int, places: deque[Place], take: Callable[[], Place], put_back: Callable[[Place], None]
) -> list[Place]:
    """Take places for `count` messages from one end of `places`. A place that is for more messages than are left to
    take is split.
    """
    found = []
    while count > 0 and places:
        consumer, room = take()
        if room > count:
            put_back((consumer, room - count))
            room = count
        found.append((consumer, room))
        count -= room
    return found


class Holdings:
    """The messages of members that consumers of the group have, by the ack tags that the group gives."""

    __slots__ = ("_held", "_next")

    def __init__(self) -> None:
        self._held: dict[int, tuple[GroupMember, int]] = {}
        self._next = 0

    def add(self, member: GroupMember, tags: Sequence[int]) -> range:
        """Give ack tags to messages of a member that have these tags there."""
        first, self._next = self._next, self._next + len(tags)
        own = range(first, self._next)
        self._held.update(zip(own, zip(repeat(member), tags)))
        return own

    def of(self, member: GroupMember) -> set[int]:
        """The ack tags that the messages of this member have at the member."""
        return {tag for holder, tag in self._held.values() if holder is member}

    @seam("where the settlement of a group's delivery goes")
    def take(self, tags: Sequence[int]) -> dict[GroupMember, list[int]]:
        """Forget messages, and return their tags by member, without those of members that have ended."""
        found: dict[GroupMember, list[int]] = {}
        for held in map(self._held.pop, tags, repeat(None)):
            if held is None or held[0].is_gone:
                continue
            member, tag = held
            of_member = found.get(member)
            if of_member is None:
                found[member] = [tag]
            else:
                of_member.append(tag)
        return found
