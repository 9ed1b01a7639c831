"""`GroupView`: reads which messages of its members a group queue counts as unacknowledged and as granted.

The simulation compares these with the pending messages of the members, to find a message that one side has forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from .process import GroupQueue


@dataclass(frozen=True, slots=True)
class GroupView:
    """See the module. The process of the group must be open."""

    group: GroupQueue

    @property
    def name(self) -> str:
        return self.group.row.name

    @property
    def take_id(self) -> str:
        """The channel id under which the group consumes from its members."""
        return self.group.role.take_id

    def channels(self) -> set[str]:
        """The ids of the channels that the group has a record of."""
        return set(self.group.channels.by_id)

    def held(self) -> dict[str, set[int]]:
        """By queue id of each member: its ack tags of the messages that consumers of the group have unacknowledged."""
        return {member.row.queue_id: self.group.role.holdings.of(member) for member in self.group.role.members}

    def reserved(self) -> int:
        """How many messages the group has granted its members and not received yet."""
        return sum(member.granted for member in self.group.role.members)
