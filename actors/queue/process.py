"""`Queue`: a replica of one queue, and its process (amqp-broker sections 9, 11 and 12; queue-and-store section 3.3).

There is one for each queue and node. It has what a process must have, whatever part its node plays for the queue:
address, mailbox and timers, the monitors and the credit of channels, and the conversation with journal, message stores
and other threads (`Durability`). What the messages mean is the matter of its `Role` (`role.py`). There are two
roles, the `Master` and the `Stream`; a group is a process of its own, which derives from this one (`group/`).

A role is pure. Handlers pass it what came in, and it writes what is to be done into `Effects`. `after_batch` ends the
turn: the role does what the turn has made due, and then the replica does what the effects say, and sends confirms.
Effects are also done before somebody who asked is answered, so that, for example, cancel-ok follows every delivery to
the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...definitions.index_sources import index_sources
from ...routing.arguments.arguments import QueueMode, QueueSettings
from ...routing.decorators import QueueDecorator, notify
from ...routing.phrases import no_queue, queue_phrase
from ...routing.queue_types import STREAM
from ...routing.rows import Member, QueueRow
from ...runtime.credit import CreditFlow, link_peer, pair_across_links
from ...runtime.errors import ProcessTimeout
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...runtime.system.address import is_elsewhere, node_of, system_of
from ...runtime.turn_work import TurnWork
from ...store.deduplication.window import Window
from ...store.messages.message import Delivery
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.inspection import residence
from ...store.queue.levels.fair_queue import FairQueue
from ...store.queue.memory_queue import MemoryQueue
from ...store.queue.range_read import SupportsRangeRead
from ...store.queue.streams.memory_stream import MemoryStream
from ...store.queue.streams.stream_segments import StreamBacking
from ..context.node_context import NodeContext
from ..context.peers import REPLICAS
from ..context.starting import ToNewQueue
from ..contracts.channel import to_channel
from ..contracts.queue import LookedUp, Peeked, QueueRecovery, VhostStorage
from ..disk.errors import BatchLost
from ..events.credit_events import trace_credit
from ..statistics.counts import MessageCounts
from .batches import fits
from .consumers.consumers import UNSENT_LIMIT, ChannelRecord, Consumer
from .disk.disk_loader import DiskLoader, Job
from .disk.durability import Durability
from .disk.head_read import HeadRead
from .disk.levels import levelled_queue, relaid
from .effects import Effects
from .floor import is_short_now
from .listing import NO_DISK, reading_items, storage_items
from .master.deduplication import Deduplication
from .master.master import Master
from .message_index.indexing import Indexing
from .message_index.look_up import look_up, peek
from .mirroring import RING_TIMERS, Replication
from .policed_settings import policed_settings
from .publisher_confirms import NumberedRun, PublisherConfirms
from .removal import Removal
from .replica_state import ReplicaState
from .role import Result, Role, Steps, Wait
from .stream.stream import Stream

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ...runtime.coroutines import Slices
    from ...store.queue.variable.read_ahead import ReadAheadJob
    from ..contracts.channel import ConfirmRange, Outcome, ToChannel
    from ..contracts.disk import HandedEntry
    from ..contracts.info_items import InfoItems
    from ..contracts.queue import AtMostOnceEntry, NeededBodies, PublishEntry, Terms
    from .disk.transit import Transit


#: Seconds for which a client waits until a replica, which the row says is the master, is it, or until a master that is
#: at rest goes on or has ended.
PROMOTION_SECONDS = 15.0

#: Seconds by which a master at rest puts off its timers.
RESTING_SECONDS = 0.05


class Queue(Process):
    """The process of one queue; `ToQueue` lists the messages that it receives."""

    __slots__ = (
        "_early",
        "_early_messages",
        "_has_read",
        "_timers",
        "backing",
        "channels",
        "confirms",
        "context",
        "counts",
        "credit",
        "decorators",
        "durability",
        "effects",
        "head_read",
        "indexing",
        "is_ending",
        "is_held",
        "is_losing_lanes",
        "is_open",
        "is_released",
        "member",
        "queue_id",
        "replication",
        "role",
        "round",
        "row",
        "settings",
        "state",
        "work",
    )

    contract = ToNewQueue
    reply_errors = (AmqpError,)

    #: What the messages mean. There is none before the queue is open.
    role: Role

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, ChannelRecord] = {}
        self.effects = Effects()
        self.decorators: tuple[QueueDecorator, ...] = ()
        #: None on a node that keeps everything in memory.
        self.durability: Durability | None = None
        #: None if the queue is not mirrored.
        self.replication: Replication | None = None
        #: None if the queue is not indexed.
        self.indexing: Indexing | None = None
        #: From the end of the recovery to the beginning of the deletion.
        self.is_open = False
        #: The queue is open, and so is whatever may receive its dead letters.
        self.is_released = False
        #: The queue is being deleted, or ends by itself: it refuses consumers and gets.
        self.is_ending = False
        #: No policy gives the queue fair lanes any more, and some of them have messages.
        self.is_losing_lanes = False
        #: The node stops: no message leaves a queue with a disk any more.
        self.is_held = False
        #: Dead letters that arrived before messages might leave: they may become dead letters once more.
        self._early: list[list[HandedEntry]] = []
        #: What has come from channels that know of a promotion earlier than this replica, or to a master at rest: the
        #: channel, and what handles it.
        self._early_messages: list[tuple[str, Callable[[], None]]] = []
        #: The role's timers that run, by name.
        self._timers: dict[str, int] = {}
        #: A read from the disk is done, and the role knows it.
        self._has_read = Signal(self)
        #: The reading of statistics for which the queue has noted its activity.
        self.round = 0
        self.counts = MessageCounts()

    # -- life ---------------------------------------------------------------------------------------

    async def on_start(
        self,
        sender: Sender,
        context: NodeContext,
        row: QueueRow,
        storage: VhostStorage | None = None,
        recovery: QueueRecovery | None = None,
    ) -> Literal[True] | NeededBodies:
        self.context = context
        self.work = TurnWork(context.settings.turn_messages)
        self.row = row
        #: Which member of the group of a mirrored queue this replica is.
        self.member: Member | None = None
        self._take_member(row)
        self.queue_id = row.queue_id
        self.settings: QueueSettings = self._policed_settings()
        self.credit = CreditFlow(
            context.settings.credit_flow_default_credit,
            self.effects.grant,
            clock=self.now,
            hold=context.settings.flow_hold_queue / 1000,
        )
        trace_credit(self, self.credit, context, queue_phrase(row.vhost, row.name))
        if storage is None:
            self._open(_memory_queue(row, self.settings, self.now), may_expire=False)
            return True
        self.durability = Durability(self, context, row, self.settings, self.credit, storage, lambda: self.is_open)
        numberings = {} if recovery is None else recovery.numberings
        if recovery is not None and numberings is None:
            return await self.durability.scan(recovery)
        self._open(self.durability.open_empty(numberings or {}), may_expire=False)
        return True

    async def on_open(self, sender: Sender, needed: NeededBodies) -> int:
        backing = await self._disk.open_recovered(needed)
        self._open(backing, self._disk.may_expire)
        return len(backing)

    def _open(self, backing: BackingQueue, may_expire: bool) -> None:
        self.backing = backing
        self.head_read = HeadRead(backing, self.effects, self.durability is not None)
        self.confirms = PublisherConfirms(self.effects, self.queue_id, self.channels)
        now, wall_clock = self.clocks()
        self.confirms.deduplication = deduplication = self._deduplication()
        self.state = ReplicaState(
            self.row,
            self.context.routing,
            backing,
            self.effects,
            self.head_read,
            self.confirms,
            self.channels,
            self.credit,
            self.work,
            may_expire,
            now,
            wall_clock,
            self.random_bytes,
            self.counts,
            self.durability.transit if self.durability is not None else None,
            deduplication=deduplication,
        )
        self.is_losing_lanes = self.settings.fair_by is None and isinstance(backing, FairQueue)
        if self.member is not None and self.context.mirroring is not None and not isinstance(backing, FairQueue):
            self.replication = self.context.mirroring.replication(self)
            self.state.backing = self.replication.backing
        follow = None if self.replication is None else self.replication.role()
        self.role = self.new_role() if follow is None else follow(self.state, self.settings)
        self._apply()
        self.is_open = True
        self.context.activity.enter(self.queue_id, "queue", self)
        if self.row.vhost not in self.context.routing.recovering:
            self._release()
        self.decorators = self.context.extensions.queue_decorators
        for decorator in self.decorators:
            notify(decorator.started, self.row)

    def _deduplication(self) -> Deduplication | None:
        """What the queue remembers of publishes: from its last process if it is durable."""
        if self.settings.deduplicate is None:
            return None
        if self.durability is None or self.durability.digest_log is None:
            return Deduplication(Window(self.settings.deduplicate), None)
        return Deduplication(self.durability.window, self.durability.digest_log)

    def new_role(self) -> Role:
        """The role with which the queue opens."""
        return self._make_master(self.state, self.settings)

    @property
    def _make_master(self) -> Callable[[ReplicaState, QueueSettings], Role]:
        """Makes the role of a replica that serves clients."""
        return Stream if self.row.type == STREAM.name else Master

    def on_recovered(self, sender: Sender) -> None:
        if self.is_open:
            self._release()

    def _release(self) -> None:
        """From now on messages may leave: the exchanges and queues that their dead letters may go to are recovered."""
        self.is_released = True
        self.role.release()
        early, self._early = self._early, []
        for entries in early:
            self._transit.arrived(entries, self.role.take_handed_over)

    def take_role(self, make: Callable[[ReplicaState, QueueSettings], Role]) -> None:
        """Replace the role, between two messages.

        The old role gives what consumers have back to the backing queue, and everything that it decided is done. Its
        timers and the reads that it asked for are forgotten.
        """
        self.role.take_delayed()
        self._do_effects()
        self.role.leave()
        for name in self._timers:
            self.effects.cancel_timer(name)
        self._do_effects()
        self.state.may_expire = True
        self.role = make(self.state, self.settings)
        self._apply()
        if self.is_released:
            self.role.release()

    def on_apply_settings(self, sender: Sender, settings: QueueSettings) -> bool:
        own = self.settings
        if (settings.max_priority, settings.single_active_consumer) != (own.max_priority, own.single_active_consumer):
            raise AmqpError(
                PRECONDITION_FAILED,
                f"priorities and the single active consumer of {queue_phrase(self.row.vhost, self.row.name)} cannot be "
                "changed: they are fixed when a queue is declared",
            )
        self._take_delayed()
        before, self.settings = own, settings
        if self.is_open:
            self._lay_lanes(before)
            self._apply()
            if self.is_released and not self.is_held:
                self.role.release()
            self.head_read.prepare()
        return True

    def on_group_changed(self, sender: Sender, row: QueueRow) -> None:
        member = None if row.group is None else row.group.member_on(self.context.node_name)
        has_left = self.member is not None and member != self.member
        if has_left and (row.group is not None or row.node != self.context.node_name):
            self.on_dismiss(sender)
            return
        self.row = row
        self._take_member(row)
        if self.is_open and self.context.mirroring is not None:
            self.state.row = row
            if member is None:
                if self.replication is not None:
                    self._use(self.backing)
                    self.replication = None
                    self._lay_lanes(self.settings)
            elif self.replication is None:
                self._begin_replication()
            else:
                self.replication.change_row()
            self._count_in_sync()

    def _count_in_sync(self) -> None:
        """Find out whether enough replicas are in sync to take publishes that await a confirm (CL-123)."""
        state = self.state
        state.is_short = self._serves and is_short_now(self.context.definitions, self.row, state.is_short)

    def _take_member(self, row: QueueRow) -> None:
        """Find out which member of its group the replica is, and let the others reach it from the first turn on."""
        member = None if row.group is None else row.group.member_on(self.context.node_name)
        if member is not None and member != self.member:
            self.register(f"{REPLICAS}/{row.queue_id}/{member.generation}")
        self.member = member

    def on_reclaim(self, sender: Sender, channel_id: str, ranges: list[ConfirmRange]) -> list[ConfirmRange] | None:
        if self.replication is None:
            raise no_queue(self.row.vhost, self.row.name)
        self.replication.reclaim(sender, channel_id, ranges)
        self.request_turn()  # an idle queue may answer in this one
        return None

    @property
    def awaiting(self) -> Iterable[NumberedRun]:
        """The publishes for which channels await confirms."""
        return [*self.confirms.recent, *self.confirms.awaiting.runs]

    def on_dismiss(self, sender: Sender) -> None:
        # A fault, as when its node stops: at an orderly end channels would confirm what nobody has taken.
        self.stop(ExitReason(ExitKind.EXIT, "its replica has left the group of the queue"))

    def _policed_settings(self) -> QueueSettings:
        context = self.context
        return policed_settings(self.row, context.definitions, context.settings.queue_mode_precedence)

    def _begin_replication(self) -> None:
        """Share the messages with the other replicas. A queue that loses its lanes does so when it has lost them."""
        if self.context.mirroring is not None and not isinstance(self.backing, FairQueue):
            self.replication = self.context.mirroring.replication(self)
            self._use(self.replication.backing)

    def _lay_lanes(self, before: QueueSettings) -> None:
        """Give the queue the fair lanes that its settings ask for, or take them away; `before` applied until now."""
        if self.replication is not None:
            return
        backing = relaid(self.backing, before, self.settings, self._make_level)
        self.is_losing_lanes = self.settings.fair_by is None and isinstance(backing, FairQueue)
        if backing is self.backing:
            return
        self.backing = self.head_read.backing = backing
        if self.durability is not None:
            self.durability.use_backing(backing, self.settings)
        if self.indexing is not None:
            self.indexing.use_backing(backing)
        self._use(backing)
        if self.member is not None:
            self._begin_replication()

    def _make_level(self, number: int) -> BackingQueue:
        return MemoryQueue(self.now) if self.durability is None else self.durability.make_level(number)

    def _use(self, backing: BackingQueue) -> None:
        self._take_delayed()
        self.state.backing = backing
        self.role.use_backing(backing)

    def become_master(self) -> None:
        """This replica of a mirrored queue serves clients from now on."""
        self.settings = self._policed_settings()
        self.take_role(self._make_master)
        self._take_early()

    def _take_early(self) -> None:
        """Take what came while this replica did not serve."""
        early, self._early_messages = self._early_messages, []
        for _, handle in early:
            handle()
        self._has_read.wake_all()

    def rest(self) -> None:
        """The master of a mirrored queue takes nothing until `go_on`, or until it is the master no more."""
        self._take_delayed()

    def go_on(self) -> None:
        """The master of a mirrored queue was at rest, and stays the master."""
        self._take_early()
        self._count_in_sync()
        self.request_turn()

    @property
    def _may_deliver(self) -> bool:
        """Messages may leave the queue now."""
        return self.is_released and not self.is_held and not self._is_resting

    @property
    def _is_resting(self) -> bool:
        """Nothing may leave the queue now, because another replica is about to become its master."""
        return self.replication is not None and self.replication.is_resting

    @property
    def _serves(self) -> bool:
        return self.replication is None or self.replication.serves

    async def _as_master(self, serve: Callable[[], Any]) -> Any:
        """Do something for a client that knows already that this replica is the master, when it does."""
        with suppress(ProcessTimeout):
            await self._has_read.wait_for(lambda: not self.is_open or self._serves, PROMOTION_SECONDS)
        if not self._serves:
            raise no_queue(self.row.vhost, self.row.name)
        found = serve()
        if isinstance(found, Generator):
            found = await self._through(found)
        return await found if isinstance(found, Coroutine) else found

    async def _through(self, slices: Slices[Result]) -> Result:
        """Do in turns what is done in slices."""
        while True:
            try:
                next(slices)
            except StopIteration as stop:
                value: Result = stop.value
                return value
            await self.next_turn()

    def on_ring(
        self, sender: Sender, generation: int, integers: list[int], kinds: bytes, contents: list[bytes]
    ) -> None:
        if self.replication is not None:
            self.replication.receive(sender, generation, integers, kinds, contents)

    def on_node_met(self, sender: Sender, node: str) -> None:
        if self.replication is not None:
            self.replication.node_met(node)

    def on_follows(self, sender: Sender, generation: int) -> None:
        if self.replication is not None:
            self.replication.follows(generation)

    async def on_sync_chunk(self, sender: Sender, first: int) -> tuple[int, int, list[bytes]]:
        if self.replication is None or not self.is_open:
            raise no_queue(self.row.vhost, self.row.name)
        return await self.replication.chunk(first)

    def on_sync_numbers(self, sender: Sender) -> list[tuple[int, int, int]]:
        if self.replication is None or not self.is_open:
            raise no_queue(self.row.vhost, self.row.name)
        return self.replication.numbers()

    def on_synchronise(self, sender: Sender, is_wanted: bool) -> bool:
        return self.replication is not None and self.replication.synchronise(is_wanted)

    async def on_quiesce(self, sender: Sender) -> int:
        if self.replication is None or not self.is_open:
            raise no_queue(self.row.vhost, self.row.name)
        return await self.replication.quiesce()

    def on_go_on(self, sender: Sender) -> None:
        if self.replication is not None:
            self.replication.go_on()

    def on_standing(self, sender: Sender) -> tuple[int, int, int]:
        if self.replication is None:
            raise no_queue(self.row.vhost, self.row.name)
        return self.replication.standing()

    def on_replica_status(self, sender: Sender) -> InfoItems:
        if self.replication is None or not self.is_open:
            raise no_queue(self.row.vhost, self.row.name)
        return self.replication.status()

    async def synced(self) -> None:
        """Return when everything that was written is on the disk, or a full disk has refused it for a while."""
        if self.durability is not None:
            await self.durability.synced()

    @property
    def loader(self) -> DiskLoader | None:
        """Reads from the disk; None if the queue keeps everything in memory."""
        return None if self.durability is None else self.durability.loader

    def on_set_queue_mode(self, sender: Sender, mode: QueueMode) -> None:
        self.on_apply_settings(sender, replace(self._policed_settings(), queue_mode=mode))

    def _apply(self) -> None:
        self.backing.set_queue_mode(self.settings.queue_mode)
        self.role.apply(self.settings)
        self._count_in_sync()
        self._apply_index(index_sources(self.settings.message_index))

    def _apply_index(self, sources: tuple[str, ...] | None) -> None:
        """Begin or end to report to the message index. A node without a directory has none."""
        if sources is None or self.durability is None:
            if self.indexing is not None:
                self.indexing.stop()
                self.indexing = self.effects.index = None
            return
        if self.indexing is None:
            places = self.context.index_places
            self.indexing = Indexing(
                self, self.row, self.durability.number, self.backing, self.durability.loader, places, self.wall_clock
            )
            self.effects.index = self.indexing.feed
        self.indexing.apply(sources, self.settings.index_retention)

    async def on_hold(self, sender: Sender) -> bool:
        self._do_effects()
        self.is_held = self.durability is not None
        await self._has_read.wait_for(lambda: not self.is_open or self.role.is_quiet)
        return True

    async def on_terminate(self, sender: Sender) -> Terms | None:
        if self.indexing is not None:
            await self.indexing.finish()
        terms = await self.durability.terminate() if self.durability is not None and self.is_open else None
        # A fault, not an orderly end: publishes that arrive from now on are lost, and at an orderly end channels would
        # confirm them.
        self.stop(ExitReason(ExitKind.EXIT, "its node stops"))
        return terms

    @property
    def label(self) -> str:
        return queue_phrase(self.row.vhost, self.row.name) if hasattr(self, "row") else ""

    def on_exit(self) -> None:
        if hasattr(self, "context"):
            self.context.activity.leave(self.queue_id)
        for decorator in self.decorators:
            notify(decorator.stopped, self.row)
        for record in self.channels.values():
            record.drop_consumers()

    # -- the end of a turn --------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Do and send what the messages of this turn have made due: what the role decides first, then the confirms of
        what the backing queue reports as safe, then everything that must be written to the disk.

        While the queue is held it stores publishes, which its next start will find, and lets nothing leave. A queue in
        memory is lost when its node stops, so `hold` changes nothing for it.
        """
        effects = self.effects
        if not self.is_released:
            # The queue may not even have been started: its supervisor may end before.
            self._do_effects()
            return
        work = self.work
        work.left = work.most
        is_held, durability = self.is_held, self.durability
        self.role.end_turn(is_held or self._is_resting)
        if self.replication is not None:
            self.replication.end_turn()
        if not is_held:
            safe, confirms = self.state.backing.drain_confirmed(), self.confirms
            if safe or confirms.recent or confirms.refused or confirms.known:
                confirms.collect(safe)
                if safe:
                    self.role.confirmed(safe)
            if self.replication is not None:
                self.replication.confirms_sent()
        if effects.outbox.channels or effects.endings or effects.messages or effects.grants or effects.has_requests:
            self._do_effects()
        if durability is not None:
            if effects.messages_came:
                effects.messages_came = False
                durability.start_reporting()
            durability.after_batch()
            if effects.grants:
                self._grant_credit()  # the disk has freed credit, and no other turn may follow
        if self.indexing is not None:
            self.indexing.after_batch()
        if self.is_losing_lanes:
            self._lay_lanes(self.settings)
        activity = self.context.activity
        if activity.round != self.round:
            self.round = activity.round
            activity.note(self.queue_id)

    def _in_slices(self, work: Slices[Result]) -> Slices[Result]:
        """Go on with what the role does in slices, and send what each slice has decided and written."""
        while True:
            try:
                next(work)
            except StopIteration as stop:
                value: Result = stop.value
                return value
            self._do_effects()
            if self.durability is not None:
                self.durability.send()
            yield

    def _do_effects(self) -> None:
        effects, send = self.effects, self.send
        if effects.messages:
            messages, effects.messages = effects.messages, []
            for address, message in messages:
                send(address, message)
        if effects.grants:
            self._grant_credit()
        if not self.is_held:
            outbox = effects.outbox
            if outbox.channels:
                queue_id, counts = self.queue_id, self.counts
                channels, outbox.channels = outbox.channels, {}
                for segments in channels.values():
                    for consumer, runs in segments:
                        consumer.channel.adapt_limit(runs)
                        for _, is_redelivered, _, contents in runs:
                            if consumer.no_ack:
                                counts.deliver_no_ack += len(contents)
                            else:
                                counts.deliver += len(contents)
                            if is_redelivered:
                                counts.redeliver += len(contents)
                        send(consumer.channel.address, to_channel.deliver(queue_id, consumer.tag, runs))
            if effects.endings:
                endings, effects.endings = effects.endings, []
                for address, message in endings:
                    send(address, message)
        if effects.has_requests:
            self._do_requests()

    def _grant_credit(self) -> None:
        grants, self.effects.grants = self.effects.grants, []
        for channel_id, amount in grants:
            record = self.channels.get(channel_id)
            if record is not None:
                self.send(record.address, to_channel.bump(self.queue_id, amount))

    def _do_requests(self) -> None:
        """Do the rarer effects."""
        effects = self.effects
        effects.has_requests = False
        if effects.consumers_changed:
            effects.consumers_changed = False
            if self.decorators:
                consumers = self.role.consumers_info()
                for decorator in self.decorators:
                    notify(decorator.consumers_changed, self.row, consumers)
        if effects.timers:
            wanted, effects.timers = effects.timers, {}
            for name, seconds in wanted.items():
                running = self._timers.pop(name, None)
                if running is not None:
                    self.cancel_timer(running)
                if seconds is not None:
                    self._timers[name] = self.start_timer(seconds, name)
        if effects.head_read is not None:
            head_read, effects.head_read = effects.head_read, None
            self.spawn(self._read_head(head_read))
        if effects.jobs:
            jobs, effects.jobs = effects.jobs, ()
            for job in jobs:
                self.spawn(self._run_job(job))
        if effects.needs_turn:
            effects.needs_turn = False
            self.request_turn()
        if effects.end_reason is not None:
            reason, effects.end_reason = effects.end_reason, None
            if not self.is_ending:
                self.spawn(self._end_by_itself(reason))

    def on_timer(self, payload: str) -> None:
        if payload == "report":
            self._disk.report()
            return
        if payload in RING_TIMERS:
            if self.replication is not None:
                self.replication.timer_fired(payload)
            return
        if self._is_resting:
            self._timers[payload] = self.start_timer(RESTING_SECONDS, payload)
            return
        self._timers.pop(payload, None)
        if self.is_open:
            self.role.timer_fired(payload)

    # -- waiting in the place of the role -----------------------------------------------------------

    def _go_through(self, steps: Steps[Result]) -> Result | Coroutine[object, None, Result]:
        """Run an operation of the role. A coroutine goes on with it if it has to wait."""
        try:
            wait = next(steps)
        except StopIteration as stop:
            return self._finished(stop)
        return self._wait_through(steps, wait)

    async def _wait_through(self, steps: Steps[Result], wait: Wait) -> Result:
        role = self.role
        while True:
            if wait is Wait.HEAD:
                await self._head_available()
            elif wait is Wait.NEXT_TURN:
                await self.next_turn()
            elif self.durability is not None:
                await self.durability.synced()
            if self.is_ending or self.role is not role:
                raise no_queue(self.row.vhost, self.row.name)
            try:
                wait = next(steps)
            except StopIteration as stop:
                return self._finished(stop)

    def _finished(self, stop: StopIteration) -> Any:
        self._do_effects()  # the answer follows everything that was decided before it
        return stop.value

    async def _head_available(self) -> None:
        """Return when a message can be taken from the head, or the queue is empty."""
        while self.is_open and len(self.backing) and not self.backing.available(1):
            self.head_read.prepare()
            self._do_effects()
            if self.head_read.is_running:
                await self._has_read.wait()

    async def _read_head(self, job: ReadAheadJob) -> None:
        await self._disk.loader.read(job)
        self.head_read.is_running = False
        if self.is_open:
            self.role.head_loaded()
        self._has_read.wake_all()

    async def _run_job(self, job: Job) -> None:
        role = self.role
        await job.run(self._disk.loader)
        if self.is_open and self.role is role:
            job.finish()
            self._do_effects()
        self._has_read.wake_all()

    # -- channels -----------------------------------------------------------------------------------

    def _record(self, channel_id: str, address: Address[ToChannel]) -> ChannelRecord:
        """The record of the channel. A new one is monitored."""
        record = self.channels.get(channel_id)
        if record is None:
            record = self.channels[channel_id] = ChannelRecord(channel_id, address)
            if is_elsewhere(address, self.myAddress):
                record.is_elsewhere = True
                is_full = link_peer(node_of(system_of(address))) in self.credit.credit_blocked
                record.unsent_limit = 0 if is_full else UNSENT_LIMIT
                self.credit.relate(channel_id, pair_across_links(self.context.settings.credit_flow_default_credit))
            self.monitor(address, channel_id)
        return record

    def on_bump(self, sender: Sender, peer: str, amount: int) -> None:
        was_blocked = self.credit.blocked
        self.credit.bump(peer, amount)
        if was_blocked and not self.credit.blocked:
            self.backing.resume()

    def on_link_full(self, sender: Sender, node: str) -> None:
        """Deliver nothing to channels of that node, and slow down whoever publishes messages that may be dead letters
        for a queue there.
        """
        peer = link_peer(node)
        self.credit.relate(peer, kind="link")
        self.credit.block(peer)
        for record in self._channels_of(node):
            record.unsent_limit = 0

    def on_link_free(self, sender: Sender, node: str) -> None:
        was_blocked = self.credit.blocked
        self.credit.unblock(link_peer(node))
        if was_blocked and not self.credit.blocked:
            self.backing.resume()
        for record in self._channels_of(node):
            record.unsent_limit = UNSENT_LIMIT
            self.role.sent(record, 0)

    def _channels_of(self, node: str) -> list[ChannelRecord]:
        if not self.is_open:
            return []
        return [
            record
            for record in self.channels.values()
            if record.is_elsewhere and node_of(system_of(record.address)) == node
        ]

    def on_sent(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.role.sent(record, count)

    def on_limiter_changed(self, sender: Sender, channel_id: str, is_limited: bool) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.role.limiter_changed(record, is_limited)

    def on_limiter_grant(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.role.limiter_grant(record, count)
            if self._may_deliver:
                # A publish that follows in the same turn may drop the head of a full queue. It must not drop a message
                # that this grant lets the queue deliver.
                self.role.deliver_due()

    def on_channel_closing(self, sender: Sender, channel_id: str) -> Slices[bool]:
        yield from self.forget_channel(channel_id)
        self.demonitor(channel_id)
        if self.replication is not None:
            self.replication.channel_gone(channel_id, True)
        self._do_effects()
        return True

    def on_down(self, name: str, reason: ExitReason) -> Slices[None] | None:
        """A channel has ended without `channel_closing`; `name` is its id."""
        if self.replication is not None:
            self.replication.channel_gone(name, not reason.is_noconnection)
        return self.forget_channel(name)

    def forget_channel(self, channel_id: str) -> Slices[None]:
        """A channel has ended, or ends. What it published before is accepted first."""
        self._take_delayed()
        for _, handle in [each for each in self._early_messages if each[0] == channel_id]:
            handle()  # it was settled before the channel ended
        self._early_messages = [each for each in self._early_messages if each[0] != channel_id]
        record = self.channels.pop(channel_id, None)
        self.credit.peer_down(channel_id)
        if record is not None:
            record.has_ended = True
            try:
                if self.is_open:
                    yield from self._in_slices(self.role.forget_channel(record))
            finally:
                # The queue may be ending, or end between two slices, and its end no longer finds this record.
                record.drop_consumers()

    # -- publishing ---------------------------------------------------------------------------------

    def on_publish(
        self,
        sender: Address[ToChannel],
        channel_id: str,
        entries: list[PublishEntry],
        user: str = "",
        floor: int = 0,
        repeated: int = 0,
    ) -> None:
        record = self.channels.get(channel_id) or self._record(channel_id, sender)
        record.user = user
        if repeated:
            record.repeated_below = repeated
        if floor and self.replication is not None:
            self.replication.answered(channel_id, floor)
        if self.replication is None or self.replication.serves:
            self.role.publish(record, entries)
        else:
            self._early_messages.append((channel_id, lambda: self.role.publish(record, entries)))

    def on_publish_at_most_once(self, sender: Sender, entries: list[AtMostOnceEntry]) -> None:
        if self._is_resting:
            self._early_messages.append(("", lambda: self.role.publish_at_most_once(entries)))
        else:
            self.role.publish_at_most_once(entries)

    def on_handed_over(self, sender: Sender, entries: list[HandedEntry]) -> None:
        if self.is_ending or self.is_held:
            return  # they stay in the journal for the next start, unless the queue is deleted
        if not self.is_released:
            self._early.append(entries)
        elif self._is_resting:
            self._early_messages.append(("", lambda: self._transit.arrived(entries, self.role.take_handed_over)))
        else:
            self._transit.arrived(entries, self.role.take_handed_over)

    def _take_delayed(self) -> None:
        if self.is_open:  # else the queue is being deleted, and nobody would remove what it wrote now
            self.role.take_delayed()

    def _catch_up(self) -> None:
        """Accept and deliver what has become due before this message, as if every message had a turn of its own: an ack
        in front of basic.cancel lets the consumer have one more message.
        """
        self._take_delayed()
        if self._may_deliver:
            self.role.deliver_due()

    # -- consuming ----------------------------------------------------------------------------------

    def on_consume(
        self,
        sender: Sender,
        channel_id: str,
        address: Address[ToChannel],
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        is_limited: bool,
        priority: int,
        arguments: Table,
        user: str,
    ) -> bool | Coroutine[object, None, bool]:
        self._check_not_ending()
        if not self._serves:
            fields = channel_id, address, tag, no_ack, exclusive, prefetch, is_limited, priority, arguments, user
            return self._as_master(lambda: self.on_consume(sender, *fields))
        record = self._record(channel_id, address)
        record.is_limited = is_limited
        consumer = Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user)
        return self._go_through(self.role.consume(consumer))

    def on_cancel(self, sender: Sender, channel_id: str, tag: str) -> bool:
        self._catch_up()
        self.role.cancel(channel_id, tag)
        self._do_effects()  # cancel-ok follows every delivery already decided
        return True

    def on_get(
        self, sender: Sender, channel_id: str, address: Address[ToChannel], no_ack: bool
    ) -> tuple[Delivery | None, int] | Coroutine[object, None, tuple[Delivery | None, int]]:
        self._check_not_ending()
        if not self._serves:
            return self._as_master(lambda: self.on_get(sender, channel_id, address, no_ack))
        return self._go_through(self.role.get(None if no_ack else self._record(channel_id, address)))

    def on_settle(
        self, sender: Sender, channel_id: str, outcome: Outcome, pieces: list[Sequence[int]]
    ) -> Slices[None] | None:
        record = self.channels.get(channel_id)
        if record is None or not self.is_open:
            return None
        if self._is_resting:
            self._early_messages.append((channel_id, lambda: self.role.settle(record, outcome, pieces)))
            return None
        work = self.work
        needed = fits(pieces, work.left)
        if not needed:
            return self._in_slices(self.role.settle_in_slices(record, outcome, pieces))
        work.left -= needed
        self.role.settle(record, outcome, pieces)
        return None

    # -- the disk -----------------------------------------------------------------------------------

    @property
    def _disk(self) -> Durability:
        assert self.durability is not None, "only a queue with a disk receives these messages"
        return self.durability

    @property
    def _transit(self) -> Transit:
        transit = self._disk.transit
        assert transit is not None, "only a durable queue is given dead letters by the journal"
        return transit

    def on_batch_lost(self, sender: Sender, by: str) -> None:
        phrase = queue_phrase(self.row.vhost, self.row.name)
        raise BatchLost(f"the {by} missed records of {phrase}, which starts again from what is on the disk")

    def on_durable(self, sender: Sender, position: int) -> None:
        self._disk.journal_synced(position)

    def on_stored(self, sender: Sender, kind: str, ids: list[bytes]) -> None:
        self._disk.bodies_stored(kind, ids)
        transit = self._disk.transit
        if transit is None or not self.is_open or self.is_held:
            return
        if self._is_resting:
            self._early_messages.append(("", lambda: transit.stored(self.role.take_handed_over)))
        else:
            transit.stored(self.role.take_handed_over)

    async def on_flush_synced(self, sender: Sender) -> bool:
        return await self._disk.flush_synced()

    def on_ram_duration_target(self, sender: Sender, seconds: float) -> None:
        self._disk.set_target(seconds)
        # The queue reports until the target is lifted: each report applies the target to what came in since.
        self._disk.start_reporting()

    def on_page_out(self, sender: Sender) -> None:
        self._disk.page_out()

    # -- the queue as a whole -----------------------------------------------------------------------

    def on_counts(self, sender: Sender) -> tuple[int, int] | Coroutine[object, None, tuple[int, int]]:
        self._take_delayed()
        self.role.use()
        return self.role.counts()

    def on_purge(self, sender: Sender) -> Slices[Coroutine[object, None, int]]:
        if not self._serves:
            return self._as_master(self._purge)
        return (yield from self._purge())

    def _purge(self) -> Slices[Coroutine[object, None, int]]:
        self._catch_up()
        count = yield from self._in_slices(self.role.purge())
        return self._purged(count)

    async def _purged(self, count: int) -> int:
        """Answer a purge as soon as it is on the disk."""
        if self.durability is not None and count:
            await self.durability.synced()
        return count

    def on_info(self, sender: Sender) -> InfoItems | Coroutine[object, None, InfoItems]:
        disk = NO_DISK if self.durability is None else self.durability.items()
        return {**self.role.info(), **disk}

    def statistics(self) -> InfoItems:
        """What management shows of the queue beside its row. Read between two turns, without a message."""
        disk = NO_DISK if self.durability is None else self.durability.items()
        items = {**self.role.info(), **disk} if self.is_open else {}
        return {**items, "vhost": self.row.vhost, "name": self.row.name, "counts": self.counts.values()}

    def on_reading_info(self, sender: Sender) -> InfoItems:
        self._check_not_ending()
        unacked = sum(len(record.pending) for record in self.channels.values())
        return reading_items(self.backing, unacked, self.role.counts()[1], self.settings.deduplicate or 0)

    def on_storage_info(self, sender: Sender) -> Slices[InfoItems]:
        backing = self.backing
        # A stream has its messages in segments, and none of its own in memory.
        return storage_items((yield from residence(backing))) if not isinstance(backing, StreamBacking) else {}

    def on_look_up(self, sender: Sender, numbers: list[int]) -> Coroutine[object, None, list[LookedUp]]:
        self._check_not_ending()
        return look_up(numbers, self.backing, self._disk.loader, self.channels, lambda: self.is_open)

    def on_peek(self, sender: Sender, position: int) -> Coroutine[object, None, Peeked | None] | None:
        self._check_not_ending()
        if not isinstance(self.backing, SupportsRangeRead):
            return None
        return peek(position, self.backing, self._disk.loader, self.channels, lambda: self.is_open)

    def on_consumers_info(self, sender: Sender) -> list[InfoItems]:
        found = self.role.consumers_info()
        here = system_of(self.myAddress)
        for items in found:
            channel = self.channels.get(items["channel"])  # a queue that is being deleted has none any more
            system = here if channel is None else system_of(channel.address)
            items["node"] = self.context.node_name if system == here else node_of(system)
        return found

    # -- the end ------------------------------------------------------------------------------------

    def _check_not_ending(self) -> None:
        self._catch_up()
        if self.is_ending:
            raise no_queue(self.row.vhost, self.row.name)

    def on_delete(self, sender: Sender, if_unused: bool, if_empty: bool) -> Coroutine[object, None, int] | None:
        # A queue that ends anyway does not answer: at its end the asker gets ProcessDown.
        return None if self.is_ending else self._delete_if(if_unused, if_empty)

    async def _delete_if(self, if_unused: bool, if_empty: bool) -> int:
        self._catch_up()
        phrase = queue_phrase(self.row.vhost, self.row.name)
        ready, consumers = self.role.counts()
        if if_empty and ready:
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} not empty")
        if if_unused and consumers:
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        await self._delete("deleted")
        return ready

    async def _end_by_itself(self, reason: str) -> None:
        """End without being asked. Metadata removes the queue from the routing table first, so that no publish is
        routed to a process that has ended.
        """
        if self.is_ending:
            return
        self.is_ending = True
        await self._removal().leave_routing()
        await self._delete(reason)

    async def _delete(self, reason: str) -> None:
        self.is_ending = True
        self.is_open = self.is_released = False
        if self.indexing is not None:
            self.indexing.queue_deleted()
        await self._removal().remove(self.backing)
        # Channels monitor the queue: at this end they cancel their consumers and confirm what is unconfirmed (AB-86).
        self.stop(reason)

    def _removal(self) -> Removal:
        return Removal(self, self.context, self.row, self.channels, self.work, self.durability)


def _memory_queue(row: QueueRow, settings: QueueSettings, clock: Callable[[], float]) -> BackingQueue:
    """A new backing queue that keeps everything in memory; `clock` gives monotonic seconds."""
    if row.type == STREAM.name:
        return MemoryStream(clock)
    if settings.top_level is not None:
        return levelled_queue(settings, lambda level: MemoryQueue(clock))
    return MemoryQueue(clock)
