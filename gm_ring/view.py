"""`View`: who is in a ring, as the log of the cluster has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: One life of a member: its node, the run of this node, and a number that no other member of the ring has ever had. A
#: member that comes back is another one, because it may have lost what it had received.
Member = tuple[str, str, int]

#: The name of a sequence of instructions. Each stream has one member that speaks, at any time.
Stream = str


@dataclass(frozen=True, slots=True)
class View:
    """The ring at one epoch. It is agreed on elsewhere; no member decides about it.

    members     in the order of the ring; the right neighbour of the last is the first
    speakers    by stream, who may add to it. If that member dies, its heir is the next one in the ring that lives: no
                other has received more. The heir goes on with the stream, or only sees to it that all get the rest.
    learners    not in the ring: they follow the last member, and may be admitted behind it. Where several members
                speak that must happen while nobody does, since a learner comes between two members of their streams.
    counted     learners that count as if they were in the ring, because this member has proposed to admit them
    serial      counts the views that this member was given, so that it can say to which one a report belongs
    """

    epoch: int
    members: tuple[Member, ...]
    speakers: Mapping[Stream, Member]
    learners: tuple[Member, ...] = ()
    counted: frozenset[Member] = field(default_factory=frozenset)
    serial: int = 0

    def left_of(self, member: Member) -> Member | None:
        """Who sends to this member; None if it is alone, or has no part in the ring."""
        if member in self.members:
            left = self.members[self.members.index(member) - 1]
            return left if left != member else None
        return self.members[-1] if member in self.learners else None

    def right_of(self, member: Member) -> Member | None:
        """To whom this member sends as a part of the ring; None if it is alone, or not in the ring."""
        if member not in self.members:
            return None
        right = self.members[(self.members.index(member) + 1) % len(self.members)]
        return right if right != member else None
