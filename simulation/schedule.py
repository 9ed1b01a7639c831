"""One schedule from its start to its end: a node, clients and a machine that do what a plan says, in an order that a chooser decides.

    outcome = run(seed)
    outcome.failure                 None, or what was broken
    print(outcome.story)            what everybody did and saw, in order

`mishaps` is what happens to the machine. At the end that is undone, and `audit` looks at what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..runtime.sim.choosing import Chooser, SeedChooser
from ..runtime.sim.trace import Describe, message_name
from ..runtime.sim.world import Conditions, SimWorld
from .clients.client import Client
from .clients.kinds import GRAVES, NAMES
from .mishaps import Mishaps
from .model import audit, invariants
from .model.audit import AUDITOR
from .model.book import Broken, PublishedMessage
from .model.queue_book import QueueBook
from .node import SimNode
from .plan import CLIENTS, WITH_HEARTBEAT, Action, Plan, draw_plan

PATIENCE = 300.0  # virtual seconds after which what has not happened will not
FAIRNESS = 200  # steps after which, at the end, nothing is left waiting
IDLE_SECONDS = 0.05
CONDITIONS = Conditions(link_delay=2e-4, blocking_delay=2e-3)
_SETTINGS: dict[str, Any] = {
    "heartbeat": 0,
    "stop_timeout": 1000,
    "vm_memory_high_watermark": 0.5,
    "disk_free_limit": 0,
}


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
    """See the module. `world` is the world it happens in; `queues` are the books of its queues, by name; `describe` is what the world's trace says of messages."""

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
            **_SETTINGS,
        )
        self.queues = {name: QueueBook(NAMES[name], plan.has_store, lambda: self.world.time) for name in plan.queues}
        graves = self.queues.get(GRAVES)
        for queue in self.queues.values():
            queue.may_go = self._queue_may_go
            if queue.kind.has_dead_letters and graves is not None:
                queue.graves = graves
                graves.sources[queue.kind.name] = queue
        self.clients = {
            name: Client(self, name, plan.heartbeat if name == WITH_HEARTBEAT else 0) for name in (*CLIENTS, AUDITOR)
        }
        self.messages: dict[int, PublishedMessage] = {}
        self.has_exchange = False
        self.told: list[tuple[float, str, str]] = []
        self.mishaps = Mishaps(self)
        self._is_running = False

    # -- what clients ask --------------------------------------------------------------------------

    @property
    def has_crashed(self) -> bool:
        return self.mishaps.has_crashed

    def tell(self, who: str, text: str) -> None:
        self.told.append((self.world.time, who, text))

    def new_message(self, channel: Any, order: int, action: Action) -> PublishedMessage:
        number = len(self.messages) + 1
        expiration = action.number("expiration") / 1000 or None
        message = self.messages[number] = PublishedMessage(
            number,
            channel,
            order,
            bool(action.number("persistent")),
            action.number("priority"),
            action.number("size"),
            self.world.time,
            expiration,
        )
        return message

    def body(self, message: PublishedMessage) -> bytes:
        head = b"%d:" % message.number
        return head + b"x" * (message.size - len(head))

    def number_in(self, body: bytes) -> int:
        number = body.partition(b":")[0]
        if not number.isdigit() or int(number) not in self.messages:
            raise Broken(f"a body came that nobody has published: {body[:60]!r}")
        return int(number)

    def check_body(self, message: PublishedMessage, body: bytes) -> None:
        if body != self.body(message):
            raise Broken(
                f"the body of message {message.number} is not the one that was published: {len(body)} octets, {body[:60]!r}"
            )

    def forget_declared(self, queue: str) -> None:
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.declared.discard(queue)

    def _queue_may_go(self, queue: QueueBook) -> None:
        for client in self.clients.values():
            for channel in client.channels.values():
                channel.queue_may_go(queue)

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
            getattr(self.mishaps, "do_" + action.what.replace("-", "_"))(action)
        else:
            self.clients[action.who].do(action)
        until = self.world.time + IDLE_SECONDS
        for _ in range(action.then):
            if not self.world.step(until):
                break

    def finish(self) -> None:
        """Undo what was done to the machine, and look at what is left. From here on nothing starves: what is asked is answered."""
        self.world.sweep_interval = FAIRNESS
        self.mishaps.undo()
        audit.leave(self)
        audit.audit(self)

    def until(self, condition: Callable[[], bool], failure: Callable[[], str]) -> None:
        """Run until that holds; raises Broken if it does not come to pass."""
        if not self.world.run_until(condition, PATIENCE):
            raise Broken(failure())

    def close(self) -> None:
        """Let go of everything, wherever it is."""
        self._is_running = False
        self.node.close()

    def _after_step(self) -> None:
        if self._is_running:
            self.mishaps.look()
            if self.world.acting_cell is not None:
                invariants.check_step(self.world.acting_cell)


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
    except Exception as error:  # whoever looked at it could not: it is in no state that was thought of
        failure = repr(error)
    return Outcome(plan, seed if chooser is None else None, failure, _story(schedule, failure), schedule.world.steps)


def _story(schedule: Schedule, failure: str | None) -> str:
    begin = schedule.told[0][0] if schedule.told else 0.0
    lines = [f"{(time - begin) * 1000:10.2f} ms  {who:8} {text}" for time, who, text in schedule.told]
    return "\n".join([*lines, f"{'':15}{'BROKEN':8} {failure}"] if failure else lines)
