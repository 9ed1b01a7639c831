"""`ReplicaProcess`: the life of one replica of a queue, its role, its settings, its turns and its disk.

`Queue` (`../process.py`) derives from it and handles the messages of clients and of other replicas. The state of the
process is in parts, each of which has what it alone changes:

    Stage             how far the replica has started or ended, and what it may do
    ChannelRecords    the channels that use the queue, and all credit
    Membership        which member of a mirrored queue the replica is, and its replication
    RoleRunner        what the role has decided and is not done yet, its timers, and operations of it that wait
    Durability        the conversation with journal, message stores and other threads
    ReplicaState      what the role shares with the replica: the backing queue, and references to the parts above

`after_batch` ends the turn: the role does what the turn has made due, then the runner does what the role has decided,
and publishers get their confirms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ....amqp.errors import AmqpError
from ....definitions.index_sources import index_sources
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.decorators import notify, notify_stopped
from ....routing.phrases import queue_phrase
from ....routing.queue_types import STREAM
from ....routing.rows import Member, QueueRow
from ....runtime.exit_reason import ExitKind, ExitReason
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....runtime.turn_work import TurnWork
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.levels.fair_queue import FairQueue
from ...context.node_context import NodeContext
from ...contracts.queue import QueueRecovery, VhostStorage, to_queue
from ...disk.errors import BatchLost
from ...statistics.counts import MessageCounts
from ..disk.disk_loader import DiskLoader
from ..disk.durability import Durability
from ..disk.head_read import HeadRead
from ..disk.levels import apply_level_settings, memory_queue, relaid
from ..floor import is_short_now
from ..master.master import Master
from ..message_index.indexing import Indexing
from ..mirroring import RING_TIMERS
from ..policed_settings import policed_settings
from ..publisher_confirms import PublisherConfirms
from ..removal import Removal
from ..replica_state import ReplicaState
from ..role import Role
from ..stream.stream import Stream
from .channel_records import ChannelRecords
from .membership import Membership
from .remembering import Remembering, remembered
from .role_runner import RoleRunner
from .stage import Stage

if TYPE_CHECKING:
    from ....runtime.contract import Sender
    from ...contracts.disk import HandedEntry
    from ...contracts.queue import NeededBodies, Terms
    from ..disk.transit import Transit


class ReplicaProcess(Process):
    """See the module."""

    __slots__ = (
        "_early_dead_letters",
        "backing",
        "channels",
        "context",
        "durability",
        "indexing",
        "is_losing_lanes",
        "membership",
        "remembering",
        "role",
        "round",
        "row",
        "runner",
        "settings",
        "stage",
        "state",
    )

    reply_errors = (AmqpError,)

    #: Handles the messages of clients. There is none before the queue is open.
    role: Role

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.channels = ChannelRecords(self)
        self.membership = Membership(self)
        self.runner = RoleRunner(self, Signal(self), self.stage, self.channels)
        #: None on a node that keeps everything in memory.
        self.durability: Durability | None = None
        #: None if the queue is not indexed.
        self.indexing: Indexing | None = None
        #: Whether the queue has fair lanes with messages although no policy gives it lanes any more.
        self.is_losing_lanes = False
        #: Dead letters of other queues that arrived before the queue was released. The queue takes them when it is,
        #: because it may dead-letter them in turn. None while there are none.
        self._early_dead_letters: list[list[HandedEntry]] | None = None
        #: `Activity.round` when the queue last noted that it has had a turn.
        self.round = 0

    # -- life ------------------------------------------------------------------------------------------

    async def on_start(
        self,
        sender: Sender,
        context: NodeContext,
        row: QueueRow,
        storage: VhostStorage | None = None,
        recovery: QueueRecovery | None = None,
    ) -> Literal[True] | NeededBodies:
        self.context = context
        self.row = row
        self.membership.take(row)
        self.settings: QueueSettings = self._policed_settings()
        self.channels.begin(context, queue_phrase(row.vhost, row.name), self.runner.effects)
        if storage is None:
            self._open(memory_queue(row, self.settings), may_expire=False)
            return True
        self.durability = Durability(self, context, row, self.settings, self.channels.credit, storage, self.stage)
        numberings = {} if recovery is None else recovery.numberings
        if recovery is not None and numberings is None:
            return await self.durability.scan(recovery)
        self._open(self.durability.open_empty(numberings or {}), may_expire=False)
        return True

    async def on_open(self, sender: Sender, needed: NeededBodies) -> int:
        backing = await self._disk.open_recovered(needed)
        if self._disk.is_copy and isinstance(backing, FairQueue):
            self.stop(ExitReason(ExitKind.EXIT, "the files on the disk are those of a queue with fair lanes"))
            await self.next_turn()
        self._open(backing, self._disk.may_expire)
        return len(backing)

    def _open(self, backing: BackingQueue, may_expire: bool) -> None:
        self.backing = backing
        runner, durability, queue_id = self.runner, self.durability, self.row.queue_id
        confirms = PublisherConfirms(runner.effects, queue_id, self.channels.by_id)
        confirms.deduplication = remembered(self.settings.window, durability)
        self.state = runner.state = ReplicaState(
            self.row,
            self.context.routing,
            backing,
            runner.effects,
            HeadRead(backing, runner.effects, durability is not None),
            confirms,
            self.channels.by_id,
            self.channels.credit,
            TurnWork(self.context.settings.turn_messages),
            may_expire,
            *self.clocks(),
            self.random_bytes,
            MessageCounts(),
            self.context.histograms,
            None if durability is None else durability.transit,
            deduplication=confirms.deduplication,
        )
        self.is_losing_lanes = self.settings.fair_by is None and isinstance(backing, FairQueue)
        self.remembering = Remembering(self, self.membership, durability)
        replication = self.membership.begin(self.context.mirroring)
        if replication is not None:
            self.state.backing = replication.backing
        follow = None if replication is None else replication.role()
        self.role = runner.role = self.new_role() if follow is None else follow(self.state, self.settings)
        self._apply()
        self.stage.is_open = True
        self.context.activity.enter(queue_id, "queue", self)
        if self.row.vhost not in self.context.routing.recovering:
            self._release()
        runner.decorators = self.context.extensions.queue_decorators
        for decorator in runner.decorators:
            notify(decorator.started, self.row)

    def new_role(self) -> Role:
        """The role with which the queue opens."""
        return self._make_master(self.state, self.settings)

    @property
    def _make_master(self) -> Callable[[ReplicaState, QueueSettings], Role]:
        """Makes the role of a replica that serves clients."""
        return Stream if self.row.type == STREAM.name else Master

    def on_recovered(self, sender: Sender) -> None:
        if self.stage.is_open:
            self._release()

    def _release(self) -> None:
        """From now on messages may leave: the exchanges and queues that their dead letters may go to are recovered."""
        self.stage.is_released = True
        self.role.release()
        early, self._early_dead_letters = self._early_dead_letters, None
        for entries in early or ():
            self._transit.arrived(entries, self.role.take_handed_over)

    # -- the role and what it depends on ---------------------------------------------------------------

    def take_role(self, make: Callable[[ReplicaState, QueueSettings], Role]) -> None:
        """Replace the role, between two messages."""
        self.runner.end_role()
        self.state.may_expire = True
        self.role = self.runner.role = make(self.state, self.settings)
        self._apply()
        if self.stage.is_released:
            self.role.release()

    def become_master(self) -> None:
        """Have this replica of a mirrored queue serve clients from now on."""
        self.settings = self._policed_settings()
        self.take_role(self._make_master)
        self._serve()

    def _serve(self) -> None:
        """Have the kept messages handled, because this replica serves clients from now on."""
        self.send(self.myAddress, to_queue.serve_kept())
        self.runner.has_changed.wake_all()

    def rest(self) -> None:
        """Have the master of a mirrored queue come to rest (`Replication.is_resting`)."""
        self.role.rest()

    def go_on(self) -> None:
        """Have the master of a mirrored queue, which was at rest and stays the master, serve clients again."""
        self._serve()
        self._count_in_sync()
        if self._may_deliver:
            self.role.release()  # messages may have become due to leave meanwhile

    @property
    def _may_deliver(self) -> bool:
        """Whether messages may leave the queue now."""
        return self.stage.is_released and not self.stage.is_held and not self.membership.is_resting

    def _policed_settings(self) -> QueueSettings:
        context = self.context
        return policed_settings(self.row, context.definitions, context.routing, context.settings.queue_mode_precedence)

    def _apply(self) -> None:
        self.state.backing.set_queue_mode(self.settings.queue_mode)
        apply_level_settings(self.backing, self.settings)
        self.role.apply(self.settings)
        self.remembering.apply(self.settings)
        self._count_in_sync()
        self._apply_index(index_sources(self.settings.message_index))

    def _apply_index(self, sources: tuple[str, ...] | None) -> None:
        """Begin or end to report to the message index. A node without a data directory has no index."""
        if sources is None or self.durability is None:
            if self.indexing is not None:
                self.indexing.stop()
                self.indexing = self.runner.effects.index = None
            return
        if self.indexing is None:
            places = self.context.index_places
            self.indexing = Indexing(
                self, self.row, self.durability.number, self.backing, self.durability.loader, places, self.wall_clock
            )
            self.runner.effects.index = self.indexing.feed
        self.indexing.apply(sources, self.settings.index_retention)

    def _lay_lanes(self, before: QueueSettings) -> None:
        """Give the queue the fair lanes that its settings ask for, or take them away; `before` applied until now."""
        if self.membership.replication is not None:
            return
        backing = relaid(self.backing, before, self.settings)
        self.is_losing_lanes = self.settings.fair_by is None and isinstance(backing, FairQueue)
        if backing is self.backing:
            return
        self.backing = self.state.head_read.backing = backing
        if self.durability is not None:
            self.durability.use_backing(backing, self.settings)
        if self.indexing is not None:
            self.indexing.use_backing(backing)
        self._use(backing)
        self._begin_replication()

    def _use(self, backing: BackingQueue) -> None:
        self._take_delayed()
        self.state.backing = backing
        self.role.use_backing(backing)

    # -- the group of a mirrored queue -----------------------------------------------------------------

    def _begin_replication(self) -> None:
        """Share the messages with the other replicas. A queue with fair lanes begins this when its lanes are gone."""
        replication = self.membership.begin(self.context.mirroring)
        if replication is not None:
            self._use(replication.backing)

    def _count_in_sync(self) -> None:
        """Find out whether enough replicas are in sync to take publishes that await a confirm (CL-123)."""
        state = self.state
        state.is_short = self.membership.serves and is_short_now(self.context.definitions, self.row, state.is_short)

    def acknowledged(self) -> list[int]:
        return self.membership.acknowledged()

    def new_signal(self) -> Signal:
        return Signal(self)

    async def synced(self) -> None:
        """Return when everything that was written is on the disk, or a full disk has refused it for a while."""
        if self.durability is not None:
            await self.durability.synced()

    @property
    def member(self) -> Member | None:
        """Which member of its group the replica is; None if the queue is not mirrored."""
        return self.membership.member

    @property
    def loader(self) -> DiskLoader | None:
        """Reads from the disk; None if the queue keeps everything in memory."""
        return None if self.durability is None else self.durability.loader

    # -- the end of a turn -----------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Do and send what the messages of this turn have made due: what the role decides first, then the confirms of
        what the backing queue reports as safe, then everything that must be written to the disk.

        While the queue is held it stores publishes, which its next start will find, and lets nothing leave. A queue in
        memory is lost when its node stops, so `hold` changes nothing for it.
        """
        runner, stage = self.runner, self.stage
        if not stage.is_released:
            # `state` may not exist yet: a process whose supervisor ends before `start` has this turn as well.
            runner.do_effects()
            return
        state = self.state
        state.work.left = state.work.most
        is_held, durability, effects = stage.is_held, self.durability, runner.effects
        self.role.end_turn(is_held or self.membership.is_resting)
        replication = self.membership.replication
        if replication is not None:
            replication.end_turn()
        if not is_held:
            safe, confirms = state.backing.drain_confirmed(), state.confirms
            if safe or confirms.recent or confirms.refused or confirms.known:
                confirms.collect(safe)
                if safe:
                    self.role.confirmed(safe)
            if replication is not None:
                replication.confirms_sent()
        if effects.outbox.channels or effects.endings or effects.messages or effects.grants or effects.has_requests:
            runner.do_effects()
        if durability is not None:
            if effects.messages_came:
                effects.messages_came = False
                durability.start_reporting()
            durability.after_batch()
            if effects.grants:
                grants, effects.grants = effects.grants, []
                # The disk has freed credit. Send it to the channels now, because no other turn may follow.
                self.channels.grant(state.row.queue_id, grants)
        if self.indexing is not None:
            self.indexing.after_batch()
        if self.is_losing_lanes:
            self._lay_lanes(self.settings)
        activity = self.context.activity
        if activity.round != self.round:
            self.round = activity.round
            activity.note(self.row.queue_id)

    def on_timer(self, payload: str) -> None:
        if payload == "report":
            self._disk.report()
        elif payload in RING_TIMERS:
            if self.membership.replication is not None:
                self.membership.replication.timer_fired(payload)
        elif self.membership.is_resting:
            self.runner.put_off_timer(payload)
        else:
            self.runner.timer_fired(payload)

    # -- the disk --------------------------------------------------------------------------------------

    @property
    def _disk(self) -> Durability:
        assert self.durability is not None, "only a queue with a disk receives these messages"
        return self.durability

    @property
    def _transit(self) -> Transit:
        transit = self._disk.transit
        assert transit is not None, "only a durable queue is given dead letters by the journal"
        return transit

    def on_bump(self, sender: Sender, peer: str, amount: int) -> None:
        credit = self.channels.credit
        was_blocked = credit.blocked
        credit.bump(peer, amount)
        if was_blocked and not credit.blocked:
            self.credit_freed()

    def credit_freed(self) -> None:
        """Go on with paging, which pauses while the journal, a store or the ring gives the queue no credit."""
        if self.durability is not None:
            self.durability.resume_paging()

    def on_batch_lost(self, sender: Sender, by: str) -> None:
        raise BatchLost(f"the {by} missed records of {self.label}, which starts again from what is on the disk")

    def on_durable(self, sender: Sender, position: int) -> None:
        self._disk.journal_synced(position)

    def on_stored(self, sender: Sender, kind: str, ids: list[bytes]) -> None:
        self._disk.bodies_stored(kind, ids)
        transit = self._disk.transit
        if transit is None or not self.stage.is_open or self.stage.is_held:
            return
        if self.membership.is_resting:
            self.membership.keep(sender, lambda: transit.stored(self.role.take_handed_over))
        else:
            transit.stored(self.role.take_handed_over)

    def on_handed_over(self, sender: Sender, entries: list[HandedEntry]) -> None:
        if self.stage.is_ending or self.stage.is_held:
            return  # the dead letters stay in the journal for the next start, unless the queue is deleted
        if not self.stage.is_released:
            self._early_dead_letters = self._early_dead_letters or []
            self._early_dead_letters.append(entries)
        elif self.membership.is_resting:
            self.membership.keep(sender, lambda: self._transit.arrived(entries, self.role.take_handed_over))
        else:
            self._transit.arrived(entries, self.role.take_handed_over)

    async def on_flush_synced(self, sender: Sender) -> bool:
        return await self._disk.flush_synced()

    def on_ram_duration_target(self, sender: Sender, seconds: float) -> None:
        self._disk.set_target(seconds)
        # The queue reports until the target is lifted: each report applies the target to what came in since.
        self._disk.start_reporting()

    def on_page_out(self, sender: Sender) -> None:
        if self.durability is not None:
            self.durability.page_out()

    def _take_delayed(self) -> None:
        if self.stage.is_open:  # else the queue is being deleted, and nobody would remove what it wrote now
            self.role.take_delayed()

    # -- the end ---------------------------------------------------------------------------------------

    async def on_hold(self, sender: Sender) -> bool:
        self.runner.do_effects()
        self.stage.is_held = self.durability is not None
        await self.runner.quiet()
        return True

    async def on_terminate(self, sender: Sender) -> Terms | None:
        if self.indexing is not None:
            await self.indexing.finish()
        terms = await self.durability.terminate() if self.durability is not None and self.stage.is_open else None
        # A fault, not an orderly end: publishes that arrive from now on are lost, and at an orderly end channels would
        # confirm them.
        self.stop(ExitReason(ExitKind.EXIT, "its node stops"))
        return terms

    async def end_by_itself(self, reason: str) -> None:
        """End without being asked. First Metadata removes the row, so that no publish is routed to an ended process."""
        if self.stage.is_ending:
            return
        self.stage.is_ending = True
        await self._removal().leave_routing()
        await self._delete(reason)

    async def _delete(self, reason: str) -> None:
        self.stage.is_ending, self.stage.is_open, self.stage.is_released = True, False, False
        if self.indexing is not None:
            self.indexing.queue_deleted()
        await self._removal().remove(self.backing, self.role)
        await self.remembering.delete()
        # Channels monitor the queue: at this end they cancel their consumers and confirm what is unconfirmed (AB-86).
        self.stop(reason)

    def _removal(self) -> Removal:
        return Removal(self, self.context, self.row, self.channels, self.state.work, self.durability)

    @property
    def label(self) -> str:
        return queue_phrase(self.row.vhost, self.row.name) if hasattr(self, "row") else ""

    def on_exit(self) -> None:
        if hasattr(self, "context"):
            self.context.activity.leave(self.row.queue_id)
        self.membership.process_ended()
        for record in self.channels.by_id.values():
            record.drop_consumers()
        if self.runner.decorators:
            notify_stopped(self.runner.decorators, self.row)
