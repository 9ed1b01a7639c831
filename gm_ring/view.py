"""`View`: the members of a ring at one epoch, as the cluster's log has decided it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A member: its node, the node's incarnation, and a number that no other member of the ring has ever had. A replica
#: that comes back is a new member, because it may have lost instructions that it had received.
Member = tuple[str, str, int]

#: The name of a sequence of instructions, to which one member at a time may add, its speaker.
Stream = str


@dataclass(frozen=True, slots=True)
class View:
    """The ring at one epoch. The cluster's metadata decides about it, not the members.

    members     in the order of the ring; the right neighbour of the last is the first
    speakers    by stream, the member that may add to it. If that member dies, its heir is the next living member of the
                ring, because no other has received more. The heir continues the stream, or only sends the others the
                rest of it.
    learners    not in the ring: they follow the last member, and may be admitted behind it. With several speakers they
                may be admitted only while none of them adds to its stream, since a learner comes between two members.
    counted     learners that count as if they were in the ring, because this member has proposed to admit them
    serial      counts the views that this member was given; a report names the one to which it belongs
    """

    epoch: int
    members: tuple[Member, ...]
    speakers: Mapping[Stream, Member]
    learners: tuple[Member, ...] = ()
    counted: frozenset[Member] = field(default_factory=frozenset)
    serial: int = 0

    def left_of(self, member: Member) -> Member | None:
        """The member that sends to this one; None if it is alone, or is neither a member nor a learner."""
        if member in self.members:
            left = self.members[self.members.index(member) - 1]
            return left if left != member else None
        return self.members[-1] if member in self.learners else None

    def right_of(self, member: Member) -> Member | None:
        """The member to which this one sends in the ring; None if it is alone, or not in the ring."""
        if member not in self.members:
            return None
        right = self.members[(self.members.index(member) + 1) % len(self.members)]
        return right if right != member else None


def begins_anew(old: View, view: View) -> bool:
    """Whether members attach anew although their neighbours are the same.

    They do if a stream has another speaker; if a member has come, because earlier numbers do not include it; and if
    views were skipped, in which a neighbour may have had other neighbours.
    """
    return view.epoch != old.epoch and (
        view.epoch > old.epoch + 1
        or not set(view.members) <= set(old.members)
        or any([old.speakers.get(stream) != speaker for stream, speaker in view.speakers.items()])
    )


def has_new_speaker(old: View, view: View) -> bool:
    """Whether a stream has another speaker, or has ended."""
    return any([view.speakers.get(stream) != speaker for stream, speaker in old.speakers.items()])
