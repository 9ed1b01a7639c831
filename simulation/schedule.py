"""`Schedule`: a node, clients and a machine that do what a plan says, in an order that a chooser decides.

    outcome = run(seed)
    outcome.failure                 None, or the promise that was broken
    print(outcome.story)            what everybody did and received, in order

At the end `faults` are undone, and `audit` empties the queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.sim.choosing import Chooser, SeedChooser
from ..runtime.sim.trace import Describe, message_name
from ..runtime.sim.world import Conditions, SimWorld
from . import audit
from .audit import AUDITOR
from .clients.channel import SimChannel
from .clients.client import Client
from .faults import Faults
from .model import invariants
from .model.copies import PromiseBroken, PublishedMessage
from .model.queue_model import QueueModel
from .node import SimNode
from .outcome import ScheduleOutcome, story_of
from .plan import CLIENTS, WITH_HEARTBEAT, Action, Plan, draw_plan
from .queue_kinds import DEAD_LETTER_QUEUE, NAMES

#: Virtual seconds within which everything that must happen at the end happens.
ANSWER_SECONDS = 300.0
#: After the plan, the world has a sweep (see `SimWorld`) each time this many steps were taken.
SWEEP_INTERVAL = 200
#: Virtual seconds without a step that end an action.
IDLE_SECONDS = 0.05
CONDITIONS = Conditions(link_delay=2e-4, blocking_delay=2e-3)
_SETTINGS: dict[str, Any] = {
    "heartbeat": 0,
    "stop_timeout": 1000,
    "vm_memory_high_watermark": 0.5,
    "disk_free_limit": 0,
}


class Schedule:
    """See the module. `describe` shows messages in the trace of the world."""

    def __init__(
        self, plan: Plan, seed: int = 0, chooser: Chooser | None = None, describe: Describe = message_name
    ) -> None:
        self.plan = plan
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS, describe=describe)
        self.world.after_step = self._after_step
        self.node = SimNode(
            self.world,
            with_store=plan.has_store,
            limits=plan.limits,
            credit_flow_default_credit=plan.credit,
            turn_messages=plan.turn_messages,
            **_SETTINGS,
        )
        #: The models of the queues, by name.
        self.queues = {name: QueueModel(NAMES[name], plan.has_store, lambda: self.world.time) for name in plan.queues}
        target = self.queues.get(DEAD_LETTER_QUEUE)
        for queue in self.queues.values():
            queue.on_may_be_gone = self._on_queue_may_be_gone
            if queue.kind.has_dead_letters and target is not None:
                queue.deaths.target = target
                target.dead_letter_sources[queue.kind.name] = queue
        self.clients = {
            name: Client(self, name, plan.heartbeat if name == WITH_HEARTBEAT else 0) for name in (*CLIENTS, AUDITOR)
        }
        #: By number, from 1.
        self.messages: dict[int, PublishedMessage] = {}
        #: Whether a client has declared the exchange.
        self.has_exchange = False
        #: The lines of the story: time, who, text.
        self.told: list[tuple[float, str, str]] = []
        self.faults = Faults(self)
        self._is_running = False

    # -- for clients ---

    @property
    def has_crashed(self) -> bool:
        """Whether a process has crashed or the node was stopped, so that connections may end."""
        return self.faults.has_crashed

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        self.told.append((self.world.time, who, text))

    def new_message(self, channel: SimChannel, order: int, action: Action) -> PublishedMessage:
        """The message that a publish of the plan sends; `order` is its place among those of the channel."""
        number = len(self.messages) + 1
        is_differing = self.plan.has_differing_messages
        expiration = action.number("expiration")
        if expiration and is_differing:
            expiration += number % 4 * 10
        message = self.messages[number] = PublishedMessage(
            number,
            channel,
            order,
            bool(action.number("persistent")),
            (action.number("priority") + number // 8 % 3 if is_differing else action.number("priority")),
            action.number("size") + (number % 3 if is_differing else 0),
            self.world.time,
            expiration / 1000 or None,
            is_differing=is_differing,
        )
        return message

    def body(self, message: PublishedMessage) -> bytes:
        """The body of a message: its number, filled up to its size."""
        head = b"%d:" % message.number
        return head + b"x" * (message.size - len(head))

    def number_in(self, body: bytes) -> int:
        """The number of the message with this body. Raises PromiseBroken if nobody has published it."""
        number = body.partition(b":")[0]
        if not number.isdigit() or int(number) not in self.messages:
            raise PromiseBroken(f"a body arrived that nobody has published: {body[:60]!r}")
        return int(number)

    def check_body(self, message: PublishedMessage, body: bytes) -> None:
        if body != self.body(message):
            raise PromiseBroken(
                f"the body of message {message.number} is not the one that was published: "
                f"{len(body)} bytes, {body[:60]!r}"
            )

    def forget_declared(self, queue: str) -> None:
        """Have every channel declare the queue again before using it, because the queue was deleted."""
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.declared.discard(queue)

    def _on_queue_may_be_gone(self, queue: QueueModel) -> None:
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.on_queue_may_be_gone(queue)

    # -- running ---

    def run(self) -> None:
        """Run the whole schedule. Raises PromiseBroken."""
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
        """Do an action, and take its `then` steps, fewer if nothing happens for a while."""
        if action.who == "machine":
            getattr(self.faults, "do_" + action.what.replace("-", "_"))(action)
        else:
            self.clients[action.who].do(action)
        until = self.world.time + IDLE_SECONDS
        for _ in range(action.then):
            if not self.world.step(until):
                break

    def finish(self) -> None:
        """Undo the faults of the machine, and check what is left. From here on every request must be answered."""
        self.world.sweep_interval = SWEEP_INTERVAL
        self.faults.undo()
        audit.leave(self)
        audit.audit(self)

    def until(self, condition: Callable[[], bool], failure: Callable[[], str]) -> None:
        """Run until `condition` holds. Raises PromiseBroken with the text `failure` if it never does."""
        if not self.world.run_until(condition, ANSWER_SECONDS):
            raise PromiseBroken(failure())

    def close(self) -> None:
        """End the node and remove its files."""
        self._is_running = False
        self.node.close()

    def _after_step(self) -> None:
        if self._is_running:
            self.faults.after_step()
            if self.world.acting_cell is not None:
                invariants.check_step(self.world.acting_cell)


def run(seed: int, plan: Plan | None = None, chooser: Chooser | None = None) -> ScheduleOutcome[Plan]:
    """Run the schedule of that seed, or the given plan in the order of the seed or of the chooser."""
    if plan is None:
        plan = draw_plan(SeedChooser(seed).below)
    schedule = Schedule(plan, seed, chooser)
    failure = None
    try:
        schedule.run()
    except AssertionError as error:
        failure = str(error) or repr(error)
    except Exception as error:  # a check failed itself, because a process is in a state that it does not expect
        failure = repr(error)
    return ScheduleOutcome(
        plan, seed if chooser is None else None, failure, story_of(schedule.told, failure), schedule.world.steps
    )
