"""What the process of a group receives: all that a queue does, and what its members send to a consumer."""

from __future__ import annotations

from ...runtime.contract import message
from .channel import ToQueueUser
from .queue import ToQueue


class ToGroup(ToQueue, ToQueueUser):
    """What `GroupQueue` (`actors/queue/group/process.py`) receives."""

    @message
    def queue_changed(self, name: str) -> None:
        """From Metadata: the queue of this name has come, has gone, or has another process or state than before."""

    @message
    def check_reader(self, user: str) -> bool:
        """From channels, before basic.get: answered True if the user may read each member.

        Refused with an AmqpError 403.
        """


to_group = ToGroup()
