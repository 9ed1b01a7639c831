"""One schedule from its start to its end: a node, clients and a machine that do what a plan says, in an order that a chooser decides.

    outcome = run(seed)
    outcome.failure                 None, or what was broken
    print(outcome.story)            what everybody did and saw, in order

At the end everything that was done to the machine is undone, the clients leave, and an auditor takes out of the queues what is in them: everything that must be there, in order,
and nothing that must not.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import ProcessDown
from ..runtime.sim_base import SimulatedCrash
from ..runtime.sim_choosing import Chooser, SeedChooser
from ..runtime.sim_world import Conditions, SimWorld
from . import invariants
from .book import KINDS, Broken, Message, QueueBook
from .client import Client
from .node import MEMORY_USED, SimNode
from .plan import CLIENTS, PLAIN, Action, Plan, draw_plan

LOOK_EVERY = 16  # steps between two looks at the credit of everybody
PATIENCE = 300.0  # virtual seconds after which what has not happened will not
REST_SECONDS = 5.0
IDLE_SECONDS = 0.05
ALARM_SECONDS = 1.2  # in which monitors look again, and what the disk has refused is tried again
CONDITIONS = Conditions(link_delay=2e-4, blocking_delay=2e-3)
AUDITOR = "auditor"
_MACHINE = Action("machine", 0, "", {})
_SETTINGS: dict[str, Any] = {"heartbeat": 0, "stop_timeout": 1000, "vm_memory_high_watermark": 0.5, "disk_free_limit": 0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule went. `story` tells it for a person, `steps` counts those of the world."""

    plan: Plan
    seed: int | None
    failure: str | None
    story: str
    steps: int

    @property
    def lines(self) -> int:
        return self.story.count("\n") + 1


class Schedule:
    """See the module. `world` is the world it happens in; `queues` are the books of its queues, by name."""

    def __init__(self, plan: Plan, seed: int = 0, chooser: Chooser | None = None) -> None:
        self.plan = plan
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS)
        self.world.after_step = self._after_step
        self.node = SimNode(self.world, with_store=plan.has_store, credit_flow_default_credit=plan.credit, **_SETTINGS)
        kinds = {kind.name: kind for kind in KINDS}
        self.queues = {name: QueueBook(kinds[name], plan.has_store) for name in plan.queues}
        self.clients = {name: Client(self, name) for name in (*CLIENTS, AUDITOR)}
        self.messages: dict[int, Message] = {}
        self.has_exchange = False
        self.has_crashed = False  # something has, or was stopped: connections may end
        self.told: list[tuple[float, str, str]] = []
        self._is_vhost_down = False
        self._is_low = {"memory": False, "disk": False}
        self._was_low_at = 0.0
        self._seen_crashes = 0
        self._is_running = False
        self._since_look = 0

    # -- what clients ask --------------------------------------------------------------------------

    def tell(self, who: str, text: str) -> None:
        self.told.append((self.world.time, who, text))

    def new_message(self, channel: Any, order: int, action: Action, may_expire: bool) -> Message:
        number = len(self.messages) + 1
        message = Message(number, channel, order, bool(action.number("persistent")), action.number("priority"), action.number("size"), may_expire)
        self.messages[number] = message
        return message

    def body(self, message: Message) -> bytes:
        head = b"%d:" % message.number
        return head + b"x" * (message.size - len(head))

    def number_in(self, body: bytes) -> int:
        number = body.partition(b":")[0]
        if not number.isdigit():
            raise Broken(f"a body came that nobody has published: {body[:60]!r}")
        return int(number)

    def check_body(self, message: Message, body: bytes) -> None:
        if body != self.body(message):
            raise Broken(f"the body of message {message.number} is not the one that was published: {len(body)} octets, {body[:60]!r}")

    def forget_declared(self, queue: str) -> None:
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.declared.discard(queue)

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it. Raises Broken when a promise was broken."""
        try:
            self.begin()
            for action in self.plan.actions:
                self.perform(action)
            self.finish()
        finally:
            self.close()

    def begin(self) -> None:
        """Start the node."""
        self.node.start()
        self._is_running = True

    def perform(self, action: Action) -> None:
        """Do one line of a plan, and what comes of it: so many steps, or fewer if nothing happens for a while."""
        if action.who == "machine":
            getattr(self, "_do_" + action.what.replace("-", "_"))(action)
        else:
            self.clients[action.who].do(action)
        until = self.world.time + IDLE_SECONDS
        for _ in range(action.then):
            if not self.world.step(until):
                break

    def close(self) -> None:
        """Let go of everything, wherever it is."""
        self._is_running = False
        self.node.close()

    def _after_step(self) -> None:
        if not self._is_running:
            return
        if len(self.world.crashes) > self._seen_crashes:
            self._look_at_crashes()
        base = self.node.base
        if base is None:
            self._power_is_gone()
            return
        if base.living == 0 and not self.node.is_stopping:
            raise Broken("the node has ended by itself")
        self._since_look += 1
        if self._since_look >= LOOK_EVERY:
            self._since_look = 0
            invariants.check_credit(base)

    def _look_at_crashes(self) -> None:
        for address, error in self.world.crashes[self._seen_crashes:]:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC and self._is_low["disk"]:
                # What recovers on a full disk gives up: a queue stays down, a store takes its virtual host with it, until the next start.
                self._is_vhost_down = True
                self.has_crashed = True
                for queue in self.queues.values():
                    queue.crashed(queue.outlives)
            elif not (isinstance(error, SimulatedCrash) or isinstance(error, ProcessDown) and self._is_vhost_down):
                raise Broken(f"process {address} crashed by itself: {type(error).__name__}: {error}") from error
        self._seen_crashes = len(self.world.crashes)

    def _until(self, condition: Callable[[], bool], failure: Callable[[], str]) -> None:
        if not self.world.run_until(condition, PATIENCE):
            raise Broken(failure())

    # -- what happens to the machine ---------------------------------------------------------------

    def _do_rest(self, action: Action) -> None:
        """Let everything come to rest."""
        if self._is_vhost_down:
            self._restart("the node is restarted, for its virtual host is down", self.node.kill)
        self._rest()

    def _rest(self) -> bool:
        world = self.world
        world.run(max(0.0, self._was_low_at + ALARM_SECONDS - world.time))
        end = world.time + REST_SECONDS
        # Small timers, such as a store's that waits for more to write, are part of what moves.
        while world.time < end:
            if not world.settle(REST_SECONDS):
                return False
            before = world.steps
            world.run(0.02)
            if world.steps == before:
                break
        base = self.node.base
        if base is None or not self.node.is_up or self._is_vhost_down or any(self._is_low.values()):
            return False
        if not world.is_quiet():
            return False
        invariants.check_at_rest(base)
        if not any(client.is_stalled for client in self.clients.values()):
            for queue in self.queues.values():
                queue.rested()
        return True

    def _do_kill(self, action: Action) -> None:
        self._restart("the process is killed", self.node.kill)

    def _do_power_cut(self, action: Action) -> None:
        after = action.number("after")
        if not after or self.node.disks is None:
            self._restart("the machine loses power", self.node.lose_power)
        else:
            self.node.disks.cut_power_after(after)

    def _power_is_gone(self) -> None:
        self._restart("the machine loses power in the middle of writing", self.node.lose_power)

    def _restart(self, text: str, end: Callable[[], None], was_stopped: bool = False) -> None:
        self.tell("machine", text)
        self.has_crashed = True
        self._is_vhost_down = self._is_low["disk"]  # for with a full disk it does not come up
        end()
        for client in self.clients.values():
            if client.connection is not None:
                stream = client.connection.stream
                client.gone(in_order=False)
                stream.reset()
        for queue in self.queues.values():
            queue.node_ended(was_stopped)
        self.has_exchange = self.has_exchange and self.plan.has_store
        if self.node.disks is not None:
            self.node.disks.heal()
        self.node.boot()

    def _do_stop(self, action: Action) -> None:
        if not self.node.is_up:
            return
        self._do_disk(_MACHINE)  # a stop waits for ever while the disk is full
        self.tell("machine", "the node is stopped in order")
        self.has_crashed = True
        self.node.begin_stop()
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.leave()  # the node closes them all, one sooner than the other
        port = self.node.port
        self._until(lambda: self.node.has_stopped or self.node.port is not port, lambda: "the node does not stop")
        if self.node.port is port:
            self._restart("the node has stopped, and starts again", self.node.end_stopped, was_stopped=True)

    def _do_memory(self, action: Action) -> None:
        is_low = bool(action.number("low"))
        if is_low != self._is_low["memory"]:
            self.tell("machine", "memory is low" if is_low else "there is memory again")
            self._was_low_at = self.world.time
        self._is_low["memory"] = is_low
        self.node.machine.memory.used = self.node.machine.memory.size if is_low else MEMORY_USED

    def _do_disk(self, action: Action) -> None:
        is_low = bool(action.number("low")) and self.node.disks is not None
        if is_low != self._is_low["disk"]:
            self.tell("machine", "the disk is full" if is_low else "there is room on the disk again")
            self._was_low_at = self.world.time
        self._is_low["disk"] = is_low
        self._is_vhost_down |= is_low and not self.node.is_up
        if self.node.disks is not None:
            self.node.disks.fill(is_low)

    def _do_crash(self, action: Action) -> None:
        """A process crashes at one of its next messages."""
        base, wanted = self.node.base, f"/{action.text('process')}-"
        left = action.number("after")

        def match(address: str, message: Any) -> bool:
            nonlocal left
            if wanted not in address or type(message) is not tuple or message[0] == "start" or message[0] == "ask" and message[2][0] == "start":
                return False
            left -= 1
            if left < 0:
                self._will_crash(address, base.cells[address].actor)  # type: ignore[union-attr]
                return True
            return False

        if base is not None:
            base.crash_when(match, after=bool(action.number("late")))

    def _will_crash(self, address: str, actor: Any) -> None:
        self.has_crashed = True
        kind = type(actor).__name__
        if kind == "Queue":
            self.tell("machine", f"the process of queue '{actor.row.name}' crashes")
            queue = self.queues[actor.row.name]
            queue.crashed(queue.outlives)
            self._is_vhost_down |= not self.node.is_up
            return
        if kind in ("Channel", "Connection"):
            client = self._client_at(actor)
            self.tell("machine", f"the process of {'a channel' if kind == 'Channel' else 'the connection'} of {client.name if client else 'nobody'} crashes")
            # A channel that crashes takes its connection with it.
            for channel in list(client.channels.values()) if client else ():
                channel.doom()
            return
        self.tell("machine", f"process {kind} crashes, and the virtual host with it")
        self._is_vhost_down = True
        for queue in self.queues.values():
            queue.crashed(queue.outlives)

    def _client_at(self, actor: Any) -> Client | None:
        """Whose connection or channel the process is: its name begins with where the client connected from."""
        name = str(getattr(actor, "connection_name", None) or getattr(actor, "name", ""))
        for client in self.clients.values():
            if client.connection is not None:
                port = 40_000 + int(client.connection.stream.name.partition("-")[2])
                if f":{port} " in name:
                    return client
        return None

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Undo what was done to the machine, let everybody get what they wait for, and look at what is left."""
        self._do_memory(_MACHINE)
        self._do_disk(_MACHINE)
        if self.node.base is not None:
            self.node.base.crash_never()
        if self.node.disks is not None:
            self.node.disks.heal()
        if self._is_vhost_down:
            self._restart("the node is restarted, for its virtual host is down", self.node.kill)
        self._until(lambda: self.node.is_up, lambda: "the node does not start")
        for client in self.clients.values():
            client.stall(False)
        self._until(lambda: not any(client.waits_for() for client in self.clients.values()),
                    lambda: "; ".join(filter(None, (client.waits_for() for client in self.clients.values()))))
        for client in self.clients.values():
            client.do(Action(client.name, 0, "close"))
        self._until(lambda: not any(client.is_connected for client in self.clients.values()), lambda: "a connection is not closed")
        self._leave_nothing()
        self._audit()
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        if not self._rest():
            raise Broken("the node does not come to rest")
        assert self.node.base is not None
        invariants.check_nobody_there(self.node.base)

    def _audit(self) -> None:
        auditor = self.clients[AUDITOR]
        self._check_names()
        found: dict[str, list[tuple[int, Any, int]]] = {}
        for name, queue in self.queues.items():
            if queue.exists is False:
                continue
            auditor.do(Action(AUDITOR, PLAIN, "consume", {"queue": name}))
            self._until(lambda: not auditor.waits_for(), lambda: "nobody answers who consumes")
            if not self._rest():
                raise Broken("the node does not come to rest")
            channel = auditor.channels.get(PLAIN)
            if channel is None:
                raise Broken(f"nobody can consume from queue '{name}'")
            deliveries = list(channel.unacked.values())
            found[name] = [(copy.copy.message.priority if queue.kind.has_priorities else 0, copy.copy.message.channel, copy.copy.message.order) for copy in deliveries]
            self._check_order(queue, found[name])
            channel.do(Action(AUDITOR, PLAIN, "settle", {"which": len(deliveries) - 1, "multiple": 1}))
            missing = queue.missing()
            if missing:
                raise Broken(f"lost: {', '.join(str(copy) for copy in missing)}{' (confirmed)' if any(copy.is_safe for copy in missing) else ''}")
        auditor.do(Action(AUDITOR, 0, "close"))
        self._until(lambda: not auditor.is_connected, lambda: "the auditor's connection is not closed")

    def _check_order(self, queue: QueueBook, found: list[tuple[int, Any, int]]) -> None:
        newest: dict[Any, int] = {}
        lowest = 1 << 30
        for priority, channel, order in found:
            if queue.kind.has_priorities:
                priority = min(priority, int(queue.kind.arguments["x-max-priority"]))
                if priority > lowest:
                    raise Broken(f"queue '{queue.kind.name}' gave a message of priority {priority} after one of {lowest}")
                lowest = priority
            if newest.get((channel, priority), 0) > order:
                raise Broken(f"what {channel} published to queue '{queue.kind.name}' came out of order: {[number for _, one, number in found if one is channel]}")
            newest[channel, priority] = order

    def _check_names(self) -> None:
        queues = {row["name"] for row in self.node.listing("queues")}
        bound = {row["destination_name"] for row in self.node.listing("bindings") if row["source_name"] == "events"}
        for name, queue in self.queues.items():
            for what, known, there in (("queue", queue.exists, name in queues), ("binding of queue", queue.is_bound, name in bound)):
                if known is not None and known != there:
                    raise Broken(f"{what} '{name}' {'is gone, though it was answered for' if known else 'is there, though its end was answered for'}")


def run(seed: int, plan: Plan | None = None, chooser: Chooser | None = None) -> Outcome:
    """The schedule of that seed; or of a plan, in the order of the seed or of a chooser."""
    if plan is None:
        plan = draw_plan(SeedChooser(seed).below)
    schedule = Schedule(plan, seed, chooser)
    failure = None
    try:
        schedule.run()
    except AssertionError as error:
        failure = str(error) or repr(error)
    return Outcome(plan, seed if chooser is None else None, failure, _story(schedule, failure), schedule.world.steps)


def _story(schedule: Schedule, failure: str | None) -> str:
    begin = schedule.told[0][0] if schedule.told else 0.0
    lines = [f"{(time - begin) * 1000:10.2f} ms  {who:8} {text}" for time, who, text in schedule.told]
    return "\n".join([*lines, f"{'':15}{'BROKEN':8} {failure}"] if failure else lines)
