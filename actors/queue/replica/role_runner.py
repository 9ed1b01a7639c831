"""`RoleRunner`: does what the role of one replica has decided, and waits in the role's place.

A role is pure: it writes into `Effects` what is to happen, and an operation of it that has to wait yields a `Wait`. The
runner sends, starts timers and reads the disk, at the end of a turn and before somebody who asked is answered, so that,
for example, cancel-ok follows every delivery to the consumer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ....routing.decorators import QueueDecorator, notify
from ....routing.phrases import no_queue
from ....runtime.signal import Signal
from ...contracts.channel import to_channel
from ...pace.holder import pacer
from ..effects import Effects
from ..role import Result, Role, Steps, Wait
from .shipping import Shipping, ShippingProcess

if TYPE_CHECKING:
    from ....runtime.contract import Address, ProcessMessage, Sender
    from ....runtime.coroutines import Slices
    from ....store.queue.variable.read_ahead import ReadAheadJob
    from ...contracts.pace import ClockName, ToPacer
    from ..disk.disk_loader import DiskLoader, Job
    from ..disk.durability import Durability
    from ..replica_state import ReplicaState
    from .channel_records import ChannelRecords
    from .membership import Membership
    from .stage import Stage

#: In front of an address: the name of the monitor of a pacer.
PACER = "pacer "

#: Seconds by which a master at rest puts off its timers.
RESTING_SECONDS = 0.05

#: The pacers of all queues that have asked none: every empty set takes 216 bytes.
_NO_PACERS: frozenset[str] = frozenset()


class RoleProcess(ShippingProcess, Protocol):
    """The process of a replica, as its runner sees it. The runner has the process and not a bound method for each of
    these, because these would cost every idle queue memory.
    """

    def start_timer(self, seconds: float, payload: str) -> int: ...

    def cancel_timer(self, timer: int) -> None: ...

    def monitor(self, address: Address[object], name: str) -> None: ...

    def request_turn(self) -> None: ...

    def reply(self, sender: Sender, value: object) -> None: ...

    @property
    def durability(self) -> Durability | None:
        """None on a node that keeps everything in memory."""

    @property
    def membership(self) -> Membership: ...

    async def end_by_itself(self, reason: str) -> None:
        """End, because the role has decided it."""


class RoleRunner:
    """Belongs to the replica whose process is `process`.

    `has_changed` wakes coroutines of that process when a read from the disk is done and the role has its result, or
    when the replica has another role.
    """

    __slots__ = (
        "_channels",
        "_pacers",
        "_process",
        "_shipping",
        "_stage",
        "_timers",
        "decorators",
        "effects",
        "has_changed",
        "role",
        "state",
    )

    #: The role that runs. There is none before the queue is open.
    role: Role
    #: What the role shares with the replica. There is none before the queue is open.
    state: ReplicaState

    def __init__(self, process: RoleProcess, has_changed: Signal, stage: Stage, channels: ChannelRecords) -> None:
        self._process = process
        self.has_changed = has_changed
        self._stage = stage
        self._channels = channels
        self.effects = Effects()
        self.decorators: tuple[QueueDecorator, ...] = ()
        #: The role's timers that run, by name. None as long as it has started none, as that of an idle queue.
        self._timers: dict[str, int] | None = None
        #: Sends the dead letters that have to be safe at their targets. None before the first.
        self._shipping: Shipping | None = None
        #: The addresses of the pacers that the role has asked, which are monitored. Nearly all queues ask none.
        self._pacers = _NO_PACERS

    # -- what the role has decided ------------------------------------------------------------------

    def do_effects(self) -> None:
        effects, send = self.effects, self._process.send
        if effects.messages:
            messages, effects.messages = effects.messages, []
            for address, message in messages:
                send(address, message)
        if effects.grants:
            grants, effects.grants = effects.grants, []
            self._channels.grant(self.state.row.queue_id, grants)
        if not self._stage.is_held:
            outbox = effects.outbox
            if outbox.channels:
                state = self.state
                queue_id, counts = state.row.queue_id, state.counts
                channels, outbox.channels = outbox.channels, {}
                for channel, segments in channels.items():
                    for consumer, runs in segments:
                        channel.adapt_limit(runs)
                        delivered = 0
                        for _, is_redelivered, _, contents in runs:
                            delivered += len(contents)
                            if is_redelivered:
                                counts.redeliver += len(contents)
                        if consumer.no_ack:
                            counts.deliver_no_ack += delivered
                        else:
                            counts.deliver += delivered
                        send(channel.address, to_channel.deliver(queue_id, consumer.tag, runs))
            if effects.endings:
                endings, effects.endings = effects.endings, []
                for address, message in endings:
                    send(address, message)
        if effects.has_requests:
            self._do_requests()

    def _do_requests(self) -> None:
        """Do the rarer effects."""
        effects, process = self.effects, self._process
        effects.has_requests = False
        if effects.consumers_changed:
            effects.consumers_changed = False
            if self.decorators:
                consumers = list(self.role.consumers_info())
                for decorator in self.decorators:
                    notify(decorator.consumers_changed, self.state.row, consumers)
        if effects.timers:
            wanted, effects.timers = effects.timers, {}
            timers = self._timers
            if timers is None:
                timers = self._timers = {}
            for name, seconds in wanted.items():
                running = timers.pop(name, None)
                if running is not None:
                    process.cancel_timer(running)
                if seconds is not None:
                    timers[name] = process.start_timer(seconds, name)
        if effects.head_read is not None:
            head_read, effects.head_read = effects.head_read, None
            process.spawn(self._read_head(head_read))
        if effects.jobs:
            jobs, effects.jobs = effects.jobs, ()
            for job in jobs:
                process.spawn(self._run_job(job))
        if effects.shipments:
            shipments, effects.shipments = effects.shipments, ()
            if self._shipping is None:
                self._shipping = Shipping(process)
            for shipment in shipments:
                self._shipping.ship(shipment)
        if effects.ends_shipping and self._shipping is not None:
            self._shipping.send_rest()
        if effects.answered:
            answered, effects.answered = effects.answered, ()
            for sender in answered:
                process.reply(sender, True)
        if effects.to_pacer:
            wanted_slots, effects.to_pacer = effects.to_pacer, ()
            for clock, request in wanted_slots:
                self._send_to_pacer(clock, request)
        if effects.needs_turn:
            effects.needs_turn = False
            process.request_turn()
        if effects.became_quiet:
            effects.became_quiet = False
            self.has_changed.wake_all()
        if effects.end_reason is not None:
            reason, effects.end_reason = effects.end_reason, None
            if not self._stage.is_ending:
                process.spawn(process.end_by_itself(reason))

    def in_slices(self, work: Slices[Result]) -> Slices[Result]:
        """Go on with what the role does in slices, and send what each slice has decided and written."""
        while True:
            try:
                next(work)
            except StopIteration as stop:
                value: Result = stop.value
                return value
            self.do_effects()
            if self._process.durability is not None:
                self._process.durability.send()
            yield

    def timer_fired(self, name: str) -> None:
        """Pass on to the role a timer that it has started."""
        if self._timers is not None:
            self._timers.pop(name, None)
        if self._stage.is_open:
            self.role.timer_fired(name)

    def _send_to_pacer(self, clock: ClockName, request: ProcessMessage[ToPacer, None]) -> None:
        address = pacer(self._process.context, clock)
        name = address.actorAddressString
        if name not in self._pacers:
            self._pacers |= {name}
            self._process.monitor(address, PACER + name)
        self._process.send(address, request)

    def pacer_down(self, name: str) -> None:
        """Have the role ask again, because a pacer has ended. `name` is that of its monitor."""
        self._pacers -= {name.removeprefix(PACER)}
        if self._stage.is_open:
            self.role.pacer_lost()
            self.do_effects()

    def put_off_timer(self, name: str) -> None:
        """Put off a timer of the role that is due while the replica is at rest."""
        if self._timers is None:
            self._timers = {}
        self._timers[name] = self._process.start_timer(RESTING_SECONDS, name)

    def end_role(self) -> None:
        """Have the role give back what consumers have, and do everything that it has decided. Its timers and the reads
        that it asked for are forgotten.
        """
        self.role.take_delayed()
        self.do_effects()
        self.role.leave()
        for name in self._timers or ():
            self.effects.cancel_timer(name)
        self.do_effects()

    # -- reading from the disk ----------------------------------------------------------------------

    @property
    def _loader(self) -> DiskLoader:
        durability = self._process.durability
        assert durability is not None, "only a queue with a disk reads from it"
        return durability.loader

    async def _read_head(self, job: ReadAheadJob) -> None:
        await self._loader.read(job)
        self.state.head_read.is_running = False
        if self._stage.is_open and not self._process.membership.is_resting:
            self.role.head_loaded()
        self.has_changed.wake_all()

    async def _run_job(self, job: Job) -> None:
        role = self.role
        await job.run(self._loader)
        if self._stage.is_open and self.role is role:
            job.finish()
            self.do_effects()
        self.has_changed.wake_all()

    # -- waiting in the place of the role -----------------------------------------------------------

    def go_through(self, steps: Steps[Result]) -> Result | Coroutine[object, None, Result]:
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
                await self._process.next_turn()
            elif self._process.durability is not None:
                await self._process.durability.synced()
            await self.has_changed.wait_for(lambda: self._stage.is_ending or not self._process.membership.is_resting)
            if self._stage.is_ending or self.role is not role:
                raise no_queue(self.state.row.vhost, self.state.row.name)
            try:
                wait = next(steps)
            except StopIteration as stop:
                return self._finished(stop)

    def _finished(self, stop: StopIteration) -> Any:
        self.do_effects()  # the answer follows everything that was decided before it
        return stop.value

    async def _head_available(self) -> None:
        """Return when a message can be taken from the head, or the queue is empty."""
        head_read = self.state.head_read
        while self._stage.is_open and len(head_read.backing) and not head_read.backing.available(1):
            head_read.prepare()
            self.do_effects()
            if head_read.is_running:
                await self.has_changed.wait()

    async def quiet(self) -> None:
        """Return when no message that has left the queue waits for the disk or for another turn before it becomes a
        dead letter, or when the queue is being deleted.
        """
        await self.has_changed.wait_for(lambda: not self._stage.is_open or self.role.is_quiet)
