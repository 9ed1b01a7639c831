"""`Membership`: one replica as a member of the group of a mirrored queue.

A queue that is not mirrored has no group, and its one replica is no member and serves its clients. A member shares the
messages of the queue by its `Replication` with the others, and serves clients only while it is the master. What
channels and other queues send it while it does not serve is kept: a channel may be notified of a promotion before the
promoted replica is, and a master rests before it hands over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....routing.phrases import no_queue
from ....store.queue.levels.fair_queue import FairQueue
from ...context.peers import REPLICAS

if TYPE_CHECKING:
    from ....routing.rows import Member, QueueRow
    from ....runtime.contract import Sender
    from ..consumers.consumer import ChannelRecord
    from ..mirroring import Mirroring, Replica, Replication


class Membership:
    """Belongs to the replica `replica`."""

    __slots__ = ("_acks", "_kept", "_replica", "member", "replication")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: Which member the replica is; None if the queue is not mirrored.
        self.member: Member | None = None
        #: None if the queue is not mirrored, or if it has fair lanes, which replicas do not share.
        self.replication: Replication | None = None
        #: The messages that are kept: the sender of each, and what handles it. None if nothing is kept.
        self._kept: list[tuple[Sender, Callable[[], object]]] | None = None
        #: The acknowledgements among them.
        self._acks: list[tuple[ChannelRecord, list[Sequence[int]]]] | None = None

    def take(self, row: QueueRow) -> Member | None:
        """Find out which member the replica is now, and register its address, so that other members reach it from its
        first turn on.
        """
        member = self.member_of(row)
        if member is not None and member != self.member:
            self._replica.register(f"{REPLICAS}/{row.queue_id}/{member.generation}")
        self.member = member
        return member

    def member_of(self, row: QueueRow) -> Member | None:
        """The member of this row that is at the replica's node."""
        return None if row.group is None else row.group.member_on(self._replica.context.node_name)

    def has_left(self, row: QueueRow) -> bool:
        """Whether the replica has to end, because `row` does not have it any more. If the queue has lost its group, the
        replica at the queue's home stays.
        """
        if self.member is None or self.member_of(row) == self.member:
            return False
        return row.group is not None or row.node != self._replica.context.node_name

    def begin(self, mirroring: Mirroring | None) -> Replication | None:
        """Share the messages with the other replicas, if the replica is a member and may do so now."""
        if self.member is not None and mirroring is not None and not isinstance(self._replica.backing, FairQueue):
            self.replication = mirroring.replication(self._replica)
        return self.replication

    @property
    def serves(self) -> bool:
        """Whether the replica serves the clients of the queue."""
        return self.replication is None or self.replication.serves

    @property
    def ring(self) -> Replication:
        """The replication, which answers other replicas and operators. Raises AmqpError 404 if there is none."""
        if self.replication is None:
            row = self._replica.row
            raise no_queue(row.vhost, row.name)
        return self.replication

    @property
    def is_resting(self) -> bool:
        """Whether no message may leave the queue now, because another replica is about to become its master."""
        return self.replication is not None and self.replication.is_resting

    @property
    def takes_acks(self) -> bool:
        """Whether acknowledgements are handled, while other messages are kept because the master comes to rest."""
        return self.is_resting and self.ring.takes_acks

    def process_ended(self) -> None:
        """Give back what the replication has taken of what the replicas of the node share."""
        if self.replication is not None:
            self.replication.process_ended()

    # -- messages that arrive while the replica does not serve ---

    @property
    def keeps(self) -> bool:
        """Whether messages are kept: until the replica serves, and until it has handled those that came before."""
        return self._kept is not None or not self.serves

    def keep(self, sender: Sender, handle: Callable[[], object]) -> None:
        """Keep a function that will handle a message of this sender."""
        if self._kept is None:
            self._kept = []
        self._kept.append((sender, handle))

    def keep_acks(self, record: ChannelRecord, pieces: list[Sequence[int]]) -> None:
        """Note acknowledgements of this channel that are among the kept messages, for `acknowledged`."""
        if self._acks is None:
            self._acks = []
        self._acks.append((record, pieces))

    def acknowledged(self) -> list[int]:
        """The numbers of the messages whose acknowledgements are kept, when another replica becomes the master."""
        return [
            number
            for record, pieces in self._acks or ()
            for tags in pieces
            if tags[0] >= 0  # else it is that of a reader by number, which takes no message
            for number in record.take_pending(tags)
        ]

    def take_kept(self) -> list[tuple[Sender, Callable[[], object]]]:
        """Remove and return all that is kept, in the order in which it came."""
        kept, self._kept, self._acks = self._kept, None, None
        return kept or []
