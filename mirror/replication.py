"""`MirrorReplication`: what a replica of a mirrored queue does with its ring, its row and the confirms.

The replica's process hands it each frame of the ring and each change of the row, and calls `end_turn` at the end of
every turn, behind the role. Then

- the master hands the ring the instructions that its backing queue has recorded, and the ring reports up to which
  position all other members have them;
- a mirror carries out the instructions that have come, and reports to the ring up to which position they are safe on
  its disk.

**The rule of confirms (CL-74).** A publish is confirmed when it is safe at the master, and all other members of the
ring have received it and, if it must survive a crash, stored it. A learner counts as a member before the master
proposes that it join, and until the master knows the outcome; a member that the log has removed counts no longer
(CL-75).

**Promotion.** The queue's row names the master. A mirror that the row names takes nothing more from its left neighbour
(the ring ensures that), removes the messages that had left the old master, and serves clients from then on. It treats
all its messages as delivered before. No confirmed message is lost: the mirror next to the old master has received
everything that any other mirror has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..actors.contracts.queue import to_queue
from ..actors.queue.mirroring import (
    COPY_TIMER,
    DONE_TIMER,
    HANDOVER_TIMER,
    LEASE_TIMER,
    ORPHAN_TIMER,
    RETRY_TIMER,
    STALL_TIMER,
)
from ..gm_ring.frames import Frame
from ..gm_ring.ring import RingMember
from ..gm_ring.wire import ONLY, packed, unpacked
from ..routing.phrases import no_queue, queue_phrase
from ..routing.rows import Member
from ..runtime.exit_reason import ExitKind, ExitReason
from ..runtime.system.address import node_of, system_of
from . import handover, instructions
from .accepted import tell_accepted
from .backing.mirrored_queue import MirroredQueue
from .backing.mirrored_stream import mirrored
from .broadcast_times import BroadcastTimes
from .follower import Follower
from .learner_admission import LearnerAdmission
from .publishers import Reclaims
from .replica import Mirror
from .ring_credit import RingCredit
from .safety import Safety
from .stall import Eviction
from .sync.copy_reports import Copies
from .sync.learner import Learner
from .sync.slow_publishers import SlowPublishers
from .sync.sync_source import SyncSource

if TYPE_CHECKING:
    from ..actors.contracts.info_items import InfoItems
    from ..actors.queue.master.deduplication import Deduplication
    from ..actors.queue.mirroring import Replica
    from ..actors.queue.replica_state import ReplicaState
    from ..actors.queue.role import Role
    from ..routing.arguments.queue_settings import QueueSettings
    from ..runtime.contract import Sender

log = logging.getLogger("warren.mirror")

#: Seconds after which a member sends a frame of its own about what the others may forget, if no other frame did so.
DONE_SECONDS = 0.025

#: Seconds after which a member attaches again to a neighbour that has not answered, because it may not run yet.
RETRY_SECONDS = 0.25

#: After this many answers to channels the master sends the mirrors, in the same turn, which records of publishers they
#: may forget. After fewer it waits until `DONE_TIMER` fires.
ANSWERED_AT_ONCE = 64

#: Seconds after which a master forgets publishes of channels of which it has no record, and at most twice as many. A
#: channel that lives has asked for them by then, unless it has given up.
ORPHAN_SECONDS = 60.0

#: Seconds between two checks of the progress of a ring for which publishers wait.
STALL_SECONDS = 1.0

#: Seconds between two checks whether the node has a lease again.
LEASE_SECONDS = 0.1

#: One object for all members without a running timer, because each empty set takes 216 bytes.
_NO_TIMERS: frozenset[str] = frozenset()


class MirrorReplication:
    """See the module."""

    def __init__(self, replica: Replica) -> None:
        assert replica.member is not None and replica.row.group is not None
        self._replica = replica
        self._member: Member = replica.member
        self._mirrored = mirrored(replica.backing, replica.row.durable)
        self._admission = LearnerAdmission(replica, self._mirrored)
        self._ring = RingMember(self._member, self._admission.view())
        #: The questions of channels after a failover.
        self._reclaims = Reclaims()
        shared = self._mirrored, self._admission, self._reclaims
        self._eviction = Eviction(replica, self._member, self._ring, *shared)
        self._safety = Safety()
        self._follower = Follower(replica, self._mirrored, self._safety)
        if replica.state.deduplication is not None:
            replica.state.deduplication.tell_mirrors = partial(tell_accepted, self._mirrored)
        self._timers, self._is_promoting = _NO_TIMERS, False
        #: How often this master has come to rest, and whether it is at rest now or about to be.
        self._rests, self.is_resting = 0, False
        self._handover = handover.Handover()
        #: The master is about to be at rest, and still takes acknowledgements.
        self.takes_acks = False
        #: Copies the queue from another replica; None for a member of the ring, which has it.
        self._learner = Learner(replica, self._ring, self._mirrored, self._follower.take) if self._is_learner else None
        self._follower.learner = self._learner
        self._slow_publishers = SlowPublishers(replica.state.credit, replica.credit_freed)
        self._ring_credit, self._copies = RingCredit(replica), Copies()
        self._times = BroadcastTimes(replica.state.histograms.ring_broadcast, replica.now)
        #: The position of the last instruction that this mirror has followed.
        self._followed = 0
        publishers = self._mirrored.publishers
        # This member was made to bring the queue back from the disk.
        is_resurrected = self._is_master and self._member.generation > 1
        publishers.is_complete = self._member in self._ring.view.members and not is_resurrected
        for _, _, parts in replica.state.confirms.unconfirmed:
            publishers.took(parts)
        self._mirrored.confirming.begin(self._mirrored.ends())
        # The previous master may have delivered every message, and may have given numbers that are not on this disk.
        self._mirrored.begin(replica.row.group.reign, is_resurrected)
        self._note_followers()

    # -- what the process hands over

    @property
    def backing(self) -> MirroredQueue:
        return self._mirrored

    def role(self) -> Callable[[ReplicaState, QueueSettings], Role] | None:
        if self._is_master:
            return None
        return lambda state, settings: Mirror(state, settings, self._mirrored)

    @property
    def _is_master(self) -> bool:
        group = self._replica.row.group
        return group is not None and group.master == self._member

    @property
    def serves(self) -> bool:
        return self._is_master and not self._is_promoting and not self.is_resting

    @property
    def _is_learner(self) -> bool:
        group = self._replica.row.group
        return group is not None and self._member in group.learners

    def change_row(self) -> None:
        was_master = self._ring.speaks(ONLY)
        group = self._replica.row.group
        assert group is not None
        self._mirrored.reign_is(group.reign)
        old = self._ring.view
        self._ring.change_view(self._admission.changed_view(old.serial + 1))
        self._slow_publishers.learners_are([member.generation for member in group.learners])
        if was_master and not self._is_master:
            # This member ends as if its node had stopped. It returns as a learner, without messages that only it had.
            handover.hand_over(self._replica, group, self.is_resting)
            self._leave("it is not the master of its queue any more")
        elif self._is_master and not was_master:
            # The promotion begins in this turn, because the next message may come from a channel that has the new row.
            self._is_promoting = True
            self._handover.begin(Member(*old.speakers[ONLY]), group)
            if self._handover.is_awaited:
                self._start_timer(HANDOVER_TIMER, handover.HANDOVER_SECONDS)
        self._handover.row_changed(group)
        if self._learner is not None and not self._is_learner:
            self._learner.end()
            self._learner = self._follower.learner = None
        if self._is_promoting:
            self._do()
            self._follow_disk()
        self._note_followers()

    def end(self) -> list[tuple[int, int]]:
        self._admission.end()
        self._ring_credit.bound(0, 0)
        self._slow_publishers.end()
        self.go_on()
        if self._is_promoting:
            # Messages that the old master had removed may come again, as if that master had been lost.
            self._promote()
        self._reclaims.refuse(self._replica)
        return self._mirrored.confirming.end()

    def process_ended(self) -> None:
        self._ring_credit.process_ended()
        if self._learner is not None:
            self._learner.gate.give_back()

    def _note_followers(self) -> None:
        """Note whether any mirror or learner receives the stream of this master."""
        view = self._ring.view
        self._mirrored.is_followed = self._is_master and (len(view.members) > 1 or bool(view.learners))

    def receive(
        self, sender: Sender, generation: int, integers: list[int], kinds: bytes, contents: list[bytes]
    ) -> None:
        frame = unpacked(integers, kinds, contents)
        system = system_of(sender)
        if frame is not None:
            node = node_of(system)
            self._ring.receive((node, system[len(node) + 1 :], generation), frame)

    def node_met(self, node: str) -> None:
        for member in {*self._ring.view.members, *self._ring.view.learners}:
            if member[0] == node:
                self._ring.neighbour_is_back(member)

    def follows(self, generation: int) -> None:
        """Note that a learner has everything that the ring has."""
        if generation not in self._admission.following:
            self._admission.following += (generation,)

    def copy_progress(self, generation: int, progress: InfoItems) -> int:
        if not self.serves:
            raise no_queue(self._replica.row.vhost, self._replica.row.name)
        self._copies.take(generation, progress)
        return self._mirrored.totals().depth

    @property
    def copies(self) -> list[InfoItems]:
        return self._copies.of(self._replica.row.group) if self.serves else []

    def copy_lags(self, generation: int) -> bool:
        """Take messages from publishers more slowly, because a learner does not come nearer."""
        if not self.serves:
            return False
        self._slow_publishers.lags(generation)
        self._start_timer(COPY_TIMER, 0.0)
        return True

    # -- the end of a turn

    def end_turn(self) -> None:
        ring, backing = self._ring, self._mirrored
        if not ring.has_part:
            return
        if ring.speaks(ONLY) and not self._is_promoting:
            if backing.out:
                self._tell_answered(ANSWERED_AT_ONCE)
                backing.took(self._times.sent(ring.broadcast(ONLY, backing.out)))
            self._do()
            if self._reclaims.are_mirrored(backing.confirming):
                backing.reached_by_all()
                self._replica.state.confirms.settled()
            self._ring_credit.bound(*ring.owed(ONLY))
            if not self.is_resting:
                self._admit()
            lease = self._replica.context.lease
            backing.may_confirm = not lease.has_ended(self._replica.now)
            if not backing.may_confirm:
                self._start_timer(LEASE_TIMER, LEASE_SECONDS)
            if self._eviction.is_outstanding:
                self._start_timer(STALL_TIMER, STALL_SECONDS)
        else:
            self._do()
            self._follow_disk()
        if ring.owes_done:
            self._start_timer(DONE_TIMER, DONE_SECONDS)
        if ring.is_unanswered:
            self._start_timer(RETRY_TIMER, RETRY_SECONDS)

    def _do(self) -> None:
        """Carry out what the ring has decided. Frames go first, so that no member waits for this replica's work."""
        turn = self._ring.end_turn()
        for to, frame in turn.frames:
            self._send(Member(*to), frame)
        for _, first, taken in turn.deliveries:
            if self._learner is None:
                self._follower.take(list(enumerate(taken, first)))
            elif taken:
                self._learner.came(first, taken)
            else:
                self._learner.begin(first - 1)
            self._followed = first + len(taken) - 1
        for report in turn.completed:
            self._mirrored.confirming.reached(report.received, report.stored)
            self._times.reached(report.received)
        if self._ring.is_out_of_sync:
            self._leave("it lacks what no other replica keeps any more")

    def _follow_disk(self) -> None:
        """Report to the ring which instructions are safe on the disk of this mirror."""
        backing = self._mirrored
        if backing.is_behind:
            self._replica.state.head_read.prepare()
            backing.remove_more()
        last = self._ring.last(ONLY)
        self._ring.safe(ONLY, self._safety.reached(last, backing.inner.drain_confirmed()))
        self._do()
        if self._is_promoting and not self._handover.is_awaited:
            backing.remove(self._handover.take())
            if not backing.is_behind:
                self._promote()

    def _send(self, to: Member, frame: Frame) -> None:
        address = self._replica.context.peers.replica(self._replica.row.queue_id, to)
        self._replica.send(address, to_queue.ring(self._member.generation, *packed(frame)))

    def _start_timer(self, name: str, seconds: float) -> None:
        if name not in self._timers:
            self._timers |= {name}
            self._replica.start_timer(seconds, name)

    def timer_fired(self, payload: str) -> None:
        self._timers = self._timers - {payload} or _NO_TIMERS
        if not self._ring.has_part:
            return
        if payload == DONE_TIMER:
            if self._ring.speaks(ONLY) and not self._is_promoting:
                self._tell_answered(1)
            self._ring.tell_done()
        elif payload == HANDOVER_TIMER:
            self._handover.give_up()
        elif payload == ORPHAN_TIMER:
            if self._mirrored.publishers.end_unknown(self._replica.state.channels):
                self._start_timer(ORPHAN_TIMER, ORPHAN_SECONDS)
        elif payload == RETRY_TIMER:
            self._ring.retry()
        elif payload == COPY_TIMER:
            seconds = self._slow_publishers.turn()
            if seconds:
                self._start_timer(COPY_TIMER, seconds)
        elif payload == STALL_TIMER and self._ring.speaks(ONLY) and not self._is_promoting:
            self._eviction.look_for_stall()
        # LEASE_TIMER needs nothing here: `end_turn` of the turn that it begins checks the lease.

    # -- what channels may ask

    def answered(self, channel_id: str, floor: int) -> None:
        self._mirrored.publishers.note_answered(channel_id, floor)

    def channel_gone(self, channel_id: str, is_certain: bool) -> None:
        if is_certain:
            self._mirrored.publishers.ended(channel_id)
        else:
            self._mirrored.publishers.lost(channel_id)
            self._start_timer(ORPHAN_TIMER, ORPHAN_SECONDS)

    def _tell_answered(self, least: int) -> None:
        """Send the mirrors which publishes they may forget, if channels have got at least this many new answers.

        No channel asks again about a publish that was answered.
        """
        backing, publishers = self._mirrored, self._mirrored.publishers
        if publishers.risen >= least and not self.is_resting:
            if backing.is_followed:
                backing.out.append(instructions.answered(publishers.untold))
            publishers.untold, publishers.risen = {}, 0

    def reclaim(self, sender: Sender, channel_id: str, ranges: list[tuple[int, int]]) -> None:
        self._reclaims.ask(channel_id, ranges, sender)

    def confirms_sent(self) -> None:
        if self._reclaims and self.serves and self._reclaims.are_mirrored(self._mirrored.confirming):
            replica, publishers = self._replica, self._mirrored.publishers
            awaiting = {part[0] for _, _, parts in replica.state.confirms.unconfirmed for part in parts}
            self._reclaims.answer(replica, publishers, awaiting)

    # -- a ring that stands still

    def standing(self) -> tuple[int, int, int]:
        return self._eviction.standing()

    def status(self) -> InfoItems:
        received, stored, waiting = self.standing()
        if self.serves:
            stored = self._mirrored.confirming.stored
        messages = self._mirrored.totals().depth
        progress = {"received": received, "stored": stored, "waiting": waiting, "messages": messages}
        return progress | ({"stage": "following"} if self._learner is None else self._learner.status())

    # -- another master

    async def quiesce(self) -> int:
        replica = self._replica
        if not self.serves:
            raise no_queue(replica.row.vhost, replica.row.name)
        self.is_resting = self.takes_acks = True
        self._rests += 1
        replica.rest()
        try:
            await handover.settled(replica)
            self.takes_acks = False
            await handover.rest(replica, lambda: handover.is_level(replica, self._mirrored, self._ring.last(ONLY)))
        except BaseException:
            self.go_on()
            raise
        # A member leaves the ring when one behind it becomes the master, unless it knows that all have the stream.
        self._ring.tell_done()
        replica.spawn(self._go_on_later(self._rests))
        return self._ring.view.epoch

    async def _go_on_later(self, rests: int) -> None:
        await self._replica.sleep(handover.TRANSFER_SECONDS)
        if rests == self._rests:
            self.go_on()

    def go_on(self) -> None:
        if self.is_resting:
            self.is_resting = self.takes_acks = False
            self._replica.go_on()

    def take_handover(self, epoch: int, acknowledged: bytes) -> None:
        self._handover.came(epoch, acknowledged)

    # -- synchronisation

    def _source(self) -> SyncSource:
        return SyncSource(self._replica, self._mirrored, lambda: self._has_everything, self._position)

    async def chunk(self, first: int) -> tuple[int, int, list[bytes]]:
        return await self._source().chunk(first)

    async def held(self, first: int, limit: int) -> tuple[int, int, int, list[tuple[int, int]], bytes]:
        return await self._source().held(first, limit)

    def numbers(self) -> list[tuple[int, int, int]]:
        return self._source().numbers()

    def floors(self) -> tuple[int, list[int]]:
        return self._source().floors()

    def window(self, at: int) -> tuple[int, int, int, int, bytes, bytes]:
        return self._source().window(at)

    def remembers(self, deduplication: Deduplication, size: int) -> None:
        deduplication.tell_mirrors = partial(tell_accepted, self._mirrored)
        if self.serves and self._mirrored.is_followed:
            self._mirrored.out.append(instructions.window(size))

    def synchronise(self, is_wanted: bool) -> bool:
        """Have a learner copy the queue, or stop that, for an operator; return whether that changed anything."""
        return self._learner is not None and self._learner.synchronise(is_wanted)

    @property
    def _has_everything(self) -> bool:
        return self._learner is None and self._ring.has_part

    def _position(self) -> int:
        """The position of the stream to which the messages here belong."""
        if self._ring.speaks(ONLY) and not self._is_promoting:
            return self._mirrored.position + len(self._mirrored.out)
        return self._followed

    def _promote(self) -> None:
        self._is_promoting = False
        replica = self._replica
        log.info(
            "%s: this replica is the master from epoch %d on, with %d messages",
            queue_phrase(replica.row.vhost, replica.row.name),
            self._ring.view.epoch,
            self._mirrored.totals().depth,
        )
        self._mirrored.promote()
        replica.state.confirms.begin()
        last = self._ring.last(ONLY)
        self._reclaims.begin(last)
        self._mirrored.on_safe = lambda safe: self._reclaims.is_safe(self._safety.reached(last, safe))
        self._mirrored.took(self._ring.last(ONLY))
        self._note_followers()  # limits and retention may make messages leave at once, which the mirrors must be sent
        self._mirrored.tell_lives()
        if self._handover.removed and self._mirrored.is_followed:
            self._mirrored.out.append((instructions.REMOVE, self._handover.removed))
        self._start_timer(ORPHAN_TIMER, ORPHAN_SECONDS)
        replica.become_master()

    # -- learners

    def _admit(self) -> None:
        """Count a learner that has everything, and propose that it join when it has whatever was confirmed."""
        admission = self._admission
        if admission.proposed is None and admission.following and admission.count_next(self._ring):
            self._do()
        if admission.proposed is not None:
            admission.propose(self._ring)

    def _leave(self, why: str) -> None:
        # End with a fault. After an orderly end channels would confirm publishes that no replica has taken.
        self._replica.stop(ExitReason(ExitKind.EXIT, why))
