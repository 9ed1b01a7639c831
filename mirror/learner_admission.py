"""`LearnerAdmission`: which learners a ring's master counts as members, and when it proposes that one join (CL-75).

A learner that has everything is counted first: publishes are confirmed only when it has them, too. When it has whatever
was confirmed before, the master proposes that the log admit it. It stays counted until a change of the row shows the
outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..actors.contracts.metadata import to_metadata
from ..actors.metadata.state.commands import AdmitToRing
from ..amqp.errors import AmqpError
from ..gm_ring.view import View
from ..gm_ring.wire import ONLY
from ..runtime.errors import ProcessDown
from ..seams import seam
from . import instructions

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from ..gm_ring.ring import RingMember
    from ..routing.rows import Member
    from .backing.mirrored_queue import MirroredQueue

#: Seconds for which an evicted replica is not admitted again: after its first eviction, then twice as long for each
#: other one in the last `COUNTED_SECONDS`, up to a maximum.
BARRED_SECONDS = 10.0
BARRED_MOST = 600.0
COUNTED_SECONDS = 3600.0

#: So many evictions bar for the maximum. Earlier ones need not be remembered.
_COUNTED_MOST = 7

#: The evictions of all masters that have evicted nobody.
_NONE_EVICTED: Mapping[str, tuple[float, ...]] = {}


class LearnerAdmission:
    """Belongs to the replica `replica`, which may be or become the master."""

    __slots__ = ("_evicted", "_mirrored", "_replica", "_taken_told", "following", "proposed")

    def __init__(self, replica: Replica, mirrored: MirroredQueue) -> None:
        self._replica = replica
        self._mirrored = mirrored
        #: The generations of learners that have everything, and wait to be admitted.
        self.following: tuple[int, ...] = ()
        #: The learner that is counted.
        self.proposed: Member | None = None
        #: The position of the instruction that names the publishers: only a learner that has the stream up to there
        #: knows which publishes were taken.
        self._taken_told = 0
        #: By node: when its replica was evicted, the last time last. The times are those that count for the last one.
        self._evicted = _NONE_EVICTED

    @seam("replica: which learners the master counts")
    def view(self, counted: frozenset[Member] = frozenset(), serial: int = 0) -> View:
        """The view of the ring by the row of the queue, with these learners counted."""
        group = self._replica.row.group
        assert group is not None
        return View(group.epoch, group.ring, {ONLY: group.master}, group.learners, frozenset(counted), serial)

    def changed_view(self, serial: int) -> View:
        """The view after a change of the row, by which the counted learner may have been admitted or removed."""
        group = self._replica.row.group
        assert group is not None
        if self.proposed is not None and self.proposed not in group.learners:
            self.proposed = None
        return self.view(frozenset() if self.proposed is None else frozenset([self.proposed]), serial)

    def count_next(self, ring: RingMember) -> bool:
        """Count a learner that has everything from now on. Returns False if there is none."""
        backing, group = self._mirrored, self._replica.row.group
        learners = () if group is None else group.learners
        ready = [member for member in learners if member.generation in self.following and self._may_join(member)]
        if not ready:
            return False
        self.proposed = ready[0]
        # The learner has copied the messages, but not how often each was returned, nor which numbers were left out, nor
        # who published what, so send all of that.
        backing.tell_returns()
        backing.tell_lives()
        backing.out.append(instructions.taken(backing.publishers))
        backing.took(ring.broadcast(ONLY, backing.out))
        self._taken_told = backing.position
        ring.change_view(self.view(frozenset(ready[:1]), ring.view.serial + 1))
        return True

    def propose(self, ring: RingMember) -> None:
        """Propose that the counted learner join, once it has whatever was confirmed."""
        member = self.proposed
        if member is not None and member.generation in self.following:
            if self._mirrored.confirming.is_level(self._taken_told):
                self.following = tuple(other for other in self.following if other != member.generation)
                self._replica.spawn(self._admit(ring, member))

    def bar(self, member: Member) -> None:
        """Do not admit a replica of this node again for a while, because this one is being evicted."""
        now = self._replica.now()
        counted = [time for time in self._evicted.get(member.node, ()) if now - time < COUNTED_SECONDS]
        self._evicted = {**self._evicted, member.node: (*counted, now)[-_COUNTED_MOST:]}

    def lift(self, member: Member) -> None:
        """Take back the last eviction that `bar` has counted: the proposal to evict this replica was refused, or
        changed nothing, because another one had evicted it.
        """
        self._evicted = {**self._evicted, member.node: self._evicted[member.node][:-1]}

    def _may_join(self, member: Member) -> bool:
        times = self._evicted.get(member.node)
        if not times:
            return True
        return self._replica.now() - times[-1] >= min(BARRED_SECONDS * 2.0 ** (len(times) - 1), BARRED_MOST)

    def end(self) -> None:
        """Admit no learner any more, because the queue is not mirrored any more."""
        self.following, self.proposed = (), None

    async def _admit(self, ring: RingMember, member: Member) -> None:
        replica, row = self._replica, self._replica.row
        assert row.group is not None
        command = AdmitToRing(row.vhost, row.name, row.queue_id, row.group.epoch, member)
        try:
            changed = await replica.ask(replica.context.metadata, to_metadata.change_definitions(command))
        except (AmqpError, ProcessDown):
            return  # the learner counts until a change of the row shows whether it was admitted
        if not changed and self.proposed == member:
            self.proposed = None
            ring.change_view(self.view(serial=ring.view.serial + 1))
