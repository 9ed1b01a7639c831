"""`GroupView`: reads which messages the process of a group counts as held and as granted.

The simulation compares that with what the members count as pending, so that it finds a message that one side forgot.
"""

from __future__ import annotations

from dataclasses import dataclass

from .process import GroupQueue


@dataclass(frozen=True, slots=True)
class GroupView:
    """See the module. The group is open."""

    group: GroupQueue

    @property
    def name(self) -> str:
        return self.group.row.name

    @property
    def take_id(self) -> str:
        """The id under which it consumes from its members."""
        return self.group.role.take_id

    def channels(self) -> set[str]:
        """The ids of the channels that it knows."""
        return set(self.group.channels.by_id)

    def held(self) -> dict[str, set[int]]:
        """By queue id of each member: the tags there of what the consumers of the group hold."""
        return {member.row.queue_id: self.group.role.holdings.of(member) for member in self.group.role.members}

    def reserved(self) -> int:
        """How many messages were granted and have not come."""
        return sum(member.granted for member in self.group.role.members)
