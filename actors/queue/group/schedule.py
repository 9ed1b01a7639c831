"""Which member of a group is next (QP-75, QP-77, QP-78). Pure.

strict              the first member that has a message. A member may have messages that the group does not know of,
                    as long as it has not answered or has grants; until then no later member gets a grant
fair, weighted      the members take turns. In its turn a member delivers `batch` messages, times its weight; a turn
                    that ends because no consumer is ready goes on when there is one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....routing.arguments.group_arguments import GroupArguments
from .members import GroupMember


class MemberSchedule(Protocol):
    """Chooses among the members of a group, which are in order."""

    def order(self, members: Sequence[GroupMember]) -> Sequence[GroupMember]:
        """The members, the one that is next first."""

    def choose(self, members: Sequence[GroupMember], now: float) -> tuple[GroupMember, int] | None:
        """The member whose offer is granted next, and how many of its messages; None if no member gets a grant now."""

    def served(self, member: GroupMember, count: int) -> None:
        """Note that this many messages of the member were granted or taken."""


class StrictPriority:
    """Prefers earlier members."""

    __slots__ = ("_starve_after",)

    def __init__(self, starve_after: float) -> None:
        self._starve_after = starve_after

    def order(self, members: Sequence[GroupMember]) -> Sequence[GroupMember]:
        return members

    def choose(self, members: Sequence[GroupMember], now: float) -> tuple[GroupMember, int] | None:
        if self._starve_after:
            starving = [
                member for member in members if member.offered and now - member.offered_since >= self._starve_after
            ]
            if starving:
                return min(starving, key=lambda member: member.offered_since), 1
        for member in members:
            if member.offered:
                return member, member.offered
            if member.is_awaited:
                return None
        return None

    def served(self, member: GroupMember, count: int) -> None:
        """Do nothing: only the order of the members decides."""


class RoundRobin:
    """Lets the members take turns."""

    __slots__ = ("_at", "_batch", "_left")

    def __init__(self, batch: int) -> None:
        self._batch = batch
        #: The member whose turn it is, and how many messages it may still deliver in it.
        self._at: GroupMember | None = None
        self._left = 0

    def order(self, members: Sequence[GroupMember]) -> Sequence[GroupMember]:
        at = self._at
        if at is None or at not in members:
            return members
        start = members.index(at) + (self._left <= 0)
        return *members[start:], *members[:start]

    def choose(self, members: Sequence[GroupMember], now: float) -> tuple[GroupMember, int] | None:
        for member in self.order(members):
            if member.offered:
                return member, min(self._left_of(member), member.offered)
        return None

    def served(self, member: GroupMember, count: int) -> None:
        self._left = self._left_of(member) - count
        self._at = member

    def _left_of(self, member: GroupMember) -> int:
        """How many messages the member may still deliver in its turn; as many as in a whole turn if its turn has not
        begun.
        """
        return self._left if member is self._at and self._left > 0 else self._batch * member.weight


def schedule_of(group: GroupArguments) -> MemberSchedule:
    """The schedule that the declaration of a group asks for."""
    return StrictPriority(group.starve_after) if group.schedule == "strict" else RoundRobin(group.batch)
