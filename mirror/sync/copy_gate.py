"""`CopyGate`: whether a learner may copy the next part of its queue now, or waits because of its node.

A learner takes no chunk while its node has an alarm, because a copy takes memory and disk space (CL-88). And at most
`COPIES_MOST` learners of a node copy at a time (CL-84): each may have some megabytes on the way to the disk, and a node
that starts may have a thousand of them. The others wait in the order in which they came. `keep_pace` has a learner wait
between two chunks (CL-89).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...actors.contracts.resources import to_alarms
from ...runtime.errors import ProcessDown

if TYPE_CHECKING:
    from ...actors.queue.mirroring import Replica

#: Seconds between two checks whether the node has an alarm.
ALARM_SECONDS = 1.0


class CopyGate:
    """Belongs to a learner, whose process is `replica`."""

    __slots__ = ("_look_at", "_next_chunk_at", "_replica", "_signal", "alarms", "is_queued")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._signal = replica.new_signal()
        #: Whether the learner waits until another one has its copy.
        self.is_queued = False
        #: The alarms of this node, and when they are asked for again.
        self.alarms: tuple[str, ...] = ()
        self._look_at = 0.0
        #: When the next chunk may be taken, by `mirroring_sync_max_throughput`.
        self._next_chunk_at = 0.0

    async def has_alarm(self) -> bool:
        """Whether this node is short of memory or disk space. Waits for a moment if it is."""
        replica = self._replica
        if replica.now() >= self._look_at:
            with suppress(ProcessDown):
                self.alarms = await replica.ask(replica.context.alarms, to_alarms.active())
            self._look_at = replica.now() + ALARM_SECONDS
        if self.alarms:
            await replica.sleep(ALARM_SECONDS)
        return bool(self.alarms)

    def may_start(self) -> bool:
        """Whether this learner is one of those of the node that copy now."""
        return self._replica.context.replica_limits.copies.take(self)

    async def wait(self) -> bool:
        """Wait until the learner may copy. Returns False if `give_back` came first."""
        self.is_queued = True
        await self._signal.wait_for(lambda: not self.is_queued or self.may_start())
        may_copy, self.is_queued = self.is_queued, False
        return may_copy

    async def keep_pace(self, size: int) -> None:
        """Sleep after a chunk of `size` bytes, if more than `mirroring_sync_max_throughput` was copied lately."""
        replica = self._replica
        most = replica.context.settings.mirroring_sync_max_throughput
        if most:
            now = replica.now()
            self._next_chunk_at = max(now, self._next_chunk_at) + size / most
            await replica.sleep(self._next_chunk_at - now)

    def may_copy(self) -> None:
        """See `Copier`."""
        self._signal.wake_all()

    def give_back(self) -> None:
        """Let other learners of the node copy: this one has its copy, or waits for something else."""
        self._replica.context.replica_limits.copies.give_back(self)
        self.alarms, self._look_at = (), 0.0
        if self.is_queued:
            self.is_queued = False
            self._signal.wake_all()
