"""`MemberProcess`: what the process of a queue does for the other replicas of a mirrored queue.

The replication of the replica handles each of these messages. The process of a queue that is not mirrored has none: it
ignores notices, and answers questions with False or AmqpError 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....routing.phrases import no_queue
from ..mirroring import Replication
from .process import ReplicaProcess

if TYPE_CHECKING:
    from ....runtime.contract import Sender
    from ...contracts.info_items import InfoItems


class MemberProcess(ReplicaProcess):
    """See the module."""

    __slots__ = ()

    def on_ring(
        self, sender: Sender, generation: int, integers: list[int], kinds: bytes, contents: list[bytes]
    ) -> None:
        if self.membership.replication is not None:
            self.membership.replication.receive(sender, generation, integers, kinds, contents)

    def on_node_met(self, sender: Sender, node: str) -> None:
        if self.membership.replication is not None:
            self.membership.replication.node_met(node)

    def on_follows(self, sender: Sender, generation: int) -> None:
        if self.membership.replication is not None:
            self.membership.replication.follows(generation)

    def on_copy_progress(self, sender: Sender, generation: int, progress: InfoItems) -> int:
        return self._ring.copy_progress(generation, progress)

    def on_copy_lags(self, sender: Sender, generation: int) -> bool:
        replication = self.membership.replication
        return replication is not None and replication.copy_lags(generation)

    async def on_sync_chunk(self, sender: Sender, first: int) -> tuple[int, int, list[bytes]]:
        return await self._ring.chunk(first)

    async def on_sync_held(
        self, sender: Sender, first: int, limit: int
    ) -> tuple[int, int, int, list[tuple[int, int]], bytes]:
        return await self._ring.held(first, limit)

    def on_sync_numbers(self, sender: Sender) -> list[tuple[int, int, int]]:
        return self._ring.numbers()

    def on_sync_floors(self, sender: Sender) -> tuple[int, list[int]]:
        return self._ring.floors()

    def on_sync_window(self, sender: Sender, at: int) -> tuple[int, int, int, int, bytes, bytes]:
        return self._ring.window(at)

    def on_synchronise(self, sender: Sender, is_wanted: bool) -> bool:
        replication = self.membership.replication
        return replication is not None and replication.synchronise(is_wanted)

    async def on_quiesce(self, sender: Sender) -> int:
        return await self._ring.quiesce()

    def on_handover(self, sender: Sender, epoch: int, acknowledged: bytes) -> None:
        if self.membership.replication is not None:
            self.membership.replication.take_handover(epoch, acknowledged)

    def on_go_on(self, sender: Sender) -> None:
        if self.membership.replication is not None:
            self.membership.replication.go_on()

    def on_standing(self, sender: Sender) -> tuple[int, int, int]:
        return self.membership.ring.standing()

    def on_replica_status(self, sender: Sender) -> InfoItems:
        return self._ring.status()

    @property
    def _ring(self) -> Replication:
        """The replication of an open replica. Raises AmqpError 404 if there is none."""
        if not self.stage.is_open:
            raise no_queue(self.row.vhost, self.row.name)
        return self.membership.ring
