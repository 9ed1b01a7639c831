"""Stalled rings: when the numbers of a ring stand still, and which member leaves the ring then (CL-80).

Something is outstanding while publishers await confirms, while they are blocked because the master retains too much for
others, and while a new master waits until all have what it took as a mirror: until then it answers no channel that asks
for its publishes. `StallWatch` notices that nothing has risen for a while. Then the master asks the others how far they
are, and `victim` chooses the member that has to leave the ring, so that the queue goes on. If no member is ahead of
another one, none of them holds up the ring, and nobody is evicted.

If the others have stored what the disk of the master does not take, the master evicts itself (CL-81), and the next one
confirms what publishers wait for.

A master that is alone in its ring retains its stream for its learners only. A learner for which it cannot forget
anything while publishers are blocked is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..actors.contracts.metadata import to_metadata
from ..actors.contracts.queue import to_queue
from ..actors.metadata.state.commands import EvictFromRings, GroupCommand, RemoveLearner
from ..amqp.errors import AmqpError
from ..gm_ring.wire import ONLY
from ..routing.phrases import queue_phrase
from ..routing.rows import Member
from ..runtime.errors import ProcessDown, ProcessTimeout
from . import ring_credit
from .policy import policy_of

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from ..gm_ring.ring import RingMember
    from .backing.mirrored_queue import MirroredQueue
    from .learner_admission import LearnerAdmission
    from .publishers import Reclaims

log = logging.getLogger("warren.mirror")

#: Seconds in which a member must answer how far it has come in the stream.
STANDING_SECONDS = 1.0


class Standing(NamedTuple):
    """How far a member is: the position up to which it has received the stream, the position up to which the stream is
    safe there, and how many instructions it has not sent to its right neighbour yet.
    """

    received: int
    safe: int
    waiting: int


class StallWatch:
    """Whether the numbers of a ring have stood still for a while, though something is outstanding."""

    __slots__ = ("_numbers", "_since")

    def __init__(self) -> None:
        self._numbers: tuple[int, ...] | None = None
        self._since = 0.0

    def is_stalled(self, now: float, is_outstanding: bool, numbers: tuple[int, ...], seconds: float) -> bool:
        """`numbers` show the progress, for example what all have received and stored; `seconds` is how long they may
        stand still.
        """
        if not is_outstanding:
            self._numbers = None
        elif numbers != self._numbers:
            self._numbers, self._since = numbers, now
        return is_outstanding and now - self._since >= seconds


def victim(ring: Sequence[Member], standings: Mapping[Member, Standing]) -> tuple[Member, str] | None:
    """The member that holds up the ring, and what it fails to do; None if none is behind another one.

    The ring begins with the master, whose `safe` does not count. A member without a standing has not answered.
    """
    for member in ring[1:]:
        if member not in standings:
            return member, "it does not answer"
    for left, member in pairwise(ring):
        if standings[member].received < standings[left].received:
            has = "has for it" if standings[left].waiting else "has sent to it"
            return member, f"it has not received what {left.node} {has}"
    mirrors = ring[1:]
    safe = [standings[member].safe for member in mirrors]
    if safe and min(safe) < max(*safe, standings[ring[0]].received if len(safe) == 1 else 0):
        return mirrors[safe.index(min(safe))], "its disk does not take what it has received"
    return None


class Eviction:
    """Has the master of a ring evict the member that holds it up. Belongs to the replica `replica`."""

    __slots__ = (
        *("_admission", "_blocked", "_member", "_mirrored", "_own_disk", "_reclaims", "_replica", "_ring"),
        "_waiting",
    )

    def __init__(
        self,
        replica: Replica,
        member: Member,
        ring: RingMember,
        mirrored: MirroredQueue,
        admission: LearnerAdmission,
        reclaims: Reclaims,
    ) -> None:
        self._replica = replica
        self._ring = ring
        self._mirrored = mirrored
        self._admission = admission
        self._member = member
        self._reclaims = reclaims
        #: Watch the ring while somebody waits for it, and while publishers are blocked; and the disk of the master.
        self._waiting, self._blocked, self._own_disk = StallWatch(), StallWatch(), StallWatch()

    @property
    def is_outstanding(self) -> bool:
        """Whether anybody waits for the members, or for a learner."""
        is_slow = self._mirrored.confirming.unsafe is not None
        return self._mirrored.is_followed and (is_slow or self._is_awaited or ring_credit.is_blocked(self._replica))

    @property
    def _is_awaited(self) -> bool:
        confirming = self._mirrored.confirming
        return confirming.is_waiting or self._reclaims.await_members(confirming)

    def standing(self) -> tuple[int, int, int]:
        """How far this member is: the fields of `Standing`."""
        return self._ring.last(ONLY), self._ring.safe_at(ONLY), self._ring.lag_of_right()

    def look_for_stall(self) -> None:
        """Evict a member if the ring has stood still for too long. Called once in a while at the master."""
        confirming, now, seconds = self._mirrored.confirming, self._replica.now(), self._ack_timeout
        numbers = confirming.received, confirming.stored
        is_awaited = self._mirrored.is_followed and self._is_awaited
        is_stalled = self._waiting.is_stalled(now, is_awaited, numbers, seconds)
        is_blocked = self._mirrored.is_followed and ring_credit.is_blocked(self._replica)
        is_full = self._blocked.is_stalled(now, is_blocked, (self._ring.kept_from(ONLY),), seconds)
        unsafe, has_others = confirming.unsafe, len(self._ring.view.members) > 1
        is_slow = self._own_disk.is_stalled(now, has_others and unsafe is not None, (unsafe or 0,), seconds)
        if is_slow and self._mirrored.may_confirm:
            self._replica.spawn(self._evict_itself())
        elif (is_stalled or is_full) and self._mirrored.may_confirm:
            slowest = [Member(*each) for each in self._ring.slowest_learners(ONLY)] if is_full else []
            self._replica.spawn(self._remove(slowest) if slowest else self._evict())

    @property
    def _ack_timeout(self) -> float:
        """Seconds that the numbers of the ring may stand still."""
        timeout = self._replica.context.settings.mirror_ack_timeout
        return float(policy_of(self._replica).get("ha-ack-timeout", timeout)) / 1000

    async def _evict(self) -> None:
        """Ask the members how far they have come in the stream, and evict the one that delays the others."""
        replica, group = self._replica, self._replica.row.group
        assert group is not None
        # The learner that is to join counts as well, because confirms wait for it already.
        counted = () if self._admission.proposed is None else (self._admission.proposed,)
        ring = (*group.ring, *counted)
        standings = {self._member: Standing(*self.standing())}
        # All are asked at once: publishers wait meanwhile, and several members may not answer.
        asked = {
            member: replica.ask(
                replica.context.peers.replica(replica.row.queue_id, member),
                to_queue.standing(),
                timeout=STANDING_SECONDS,
            )
            for member in ring[1:]
        }
        for member, answer in asked.items():
            with suppress(AmqpError, ProcessDown, ProcessTimeout):
                standings[member] = Standing(*await answer)
        found = victim(ring, standings)
        if found is None or replica.row.group != group or not self.is_outstanding:
            return
        member, why = found
        if member in counted:
            await self._remove([member], why)
            return
        await self._evict_member(member, why, group.epoch)

    async def _evict_itself(self) -> None:
        await self._evict_member(self._member, "its disk does not take what it has published", self._ring.view.epoch)

    async def _evict_member(self, member: Member, why: str, epoch: int) -> None:
        row = self._replica.row
        where = row.vhost, row.name, row.queue_id, epoch
        await self._propose(member, why, EvictFromRings((where,), member.node, why))

    async def _remove(self, learners: Sequence[Member], why: str = "it does not take what it is sent") -> None:
        row = self._replica.row
        for learner in learners:
            await self._propose(learner, why, RemoveLearner(row.vhost, row.name, row.queue_id, learner))

    async def _propose(self, member: Member, why: str, command: GroupCommand) -> None:
        replica, row = self._replica, self._replica.row
        log.warning("%s: the replica on %s is evicted: %s", queue_phrase(row.vhost, row.name), member.node, why)
        # The member is barred before it can come back. Another coroutine may have proposed the same a moment ago: a
        # proposal that changes nothing counts as no eviction.
        self._admission.bar(member)
        changed = 0
        with suppress(AmqpError, ProcessDown):
            changed = await replica.ask(replica.context.metadata, to_metadata.change_definitions(command))
        if not changed:
            self._admission.lift(member)
