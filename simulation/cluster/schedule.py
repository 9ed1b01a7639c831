"""`ClusterSchedule`: the nodes of a cluster, clients, machines and a network that do what a plan says, in an order that
a chooser decides.

    outcome = run(seed)
    outcome.failure                 None, or the promise that was broken
    print(outcome.story)            what everybody did and received, in order

The `Ledger`, with which tests compare real clusters too, records what clients were promised. `checks` examines what
clients cannot see. At the end everything is healed, every request must be answered, and the queues are emptied.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...runtime.sim.choosing import Chooser, SeedChooser
from ...runtime.sim.world import Conditions, SimWorld
from ..model.copies import PromiseBroken
from ..outcome import ScheduleOutcome, story_of
from ..plan import Action
from .checks import ClusterChecks
from .clients import ClusterClient
from .faults import ClusterFaults
from .ledger import Ledger, Promises, Violation
from .nodes import ClusterNode, ClusterNodes
from .plan import (
    CLIENTS,
    CONSUMING,
    DEAD_LETTERS,
    DECLARING,
    READING,
    STREAM,
    ClusterPlan,
    draw_cluster_plan,
    queue_of,
)
from .published import LedgerCopy

#: Virtual seconds within which a cluster is found, a healed one is whole, and everything is answered.
READY_SECONDS, WHOLE_SECONDS, ANSWER_SECONDS = 60.0, 60.0, 60.0
#: After the plan, the world has a sweep (see `SimWorld`) each time this many steps were taken.
SWEEP_INTERVAL = 400
#: Virtual seconds without a step that end an action.
IDLE_SECONDS = 0.05
CONDITIONS = Conditions(link_delay=2e-4, blocking_delay=2e-3)
AUDITOR = "auditor"
_SETTINGS: dict[str, Any] = {
    "heartbeat": 0,
    "stop_timeout": 1000,
    "vm_memory_high_watermark": 0.5,
    "disk_free_limit": 0,
}


class ClusterSchedule:
    """See the module."""

    def __init__(self, plan: ClusterPlan, seed: int = 0, chooser: Chooser | None = None) -> None:
        self.plan = plan
        self.world = SimWorld(seed, chooser, conditions=CONDITIONS)
        self.world.after_step = self._after_step
        self.nodes = ClusterNodes(
            self.world,
            plan.letters,
            plan.limits,
            credit_flow_default_credit=plan.credit,
            turn_messages=plan.turn_messages,
            replace_lost=True,
            **_SETTINGS,
        )
        self.ledger = Ledger(promises=Promises(fails_over=plan.is_mirrored), clock=self.world.now)
        self.clients = {
            name: ClusterClient(self, name, plan.letters[number % len(plan.letters)])
            for number, name in enumerate((*CLIENTS, AUDITOR))
        }
        #: The lines of the story: time, who, text.
        self.told: list[tuple[float, str, str]] = []
        self.faults = ClusterFaults(self)
        self.checks = ClusterChecks(self)
        self._is_running = False

    def tell(self, who: str, text: str) -> None:
        """Add a line to the story."""
        self.told.append((self.world.time, who, text))

    def must_be_disturbed(self, text: str) -> None:
        """Raise PromiseBroken with this text if nothing has happened to the cluster that explains it."""
        if not self.faults.is_disturbed:
            raise PromiseBroken(f"{text}, though nothing has happened to the cluster")

    def check_in_force(self, queue: str, is_there: bool) -> None:
        """Check, after a declare or a delete was answered, that it is in force on every node which serves clients."""
        self.checks.check_in_force(queue, is_there)

    # -- running ---

    def run(self) -> None:
        """Run the whole schedule. Raises PromiseBroken and Violation."""
        try:
            self.begin()
            for action in self.plan.actions:
                self.perform(action)
            self.finish()
        finally:
            self.close()

    def begin(self) -> None:
        """Start the nodes, which found their cluster, and declare a queue on each."""
        for node in self.nodes:
            node.boot()
        self._is_running = True
        self.until(
            lambda: self.nodes.are_up() and self.faults.are_well(), READY_SECONDS, lambda: "the nodes find no cluster"
        )
        if self.plan.is_mirrored:
            self._mirror()
        for letter in self.plan.letters:
            client = ClusterClient(self, f"setup-{letter}", letter)
            client.do(Action(client.name, DECLARING, "declare", {"queue": queue_of(letter)}))
            client.do(Action(client.name, DECLARING, "bind", {"queue": queue_of(letter)}))
            if self.plan.has_dead_letters and letter == self.plan.letters[-1]:
                client.do(Action(client.name, DECLARING, "declare", {"queue": DEAD_LETTERS}))
            self._answered([client])
            client.do(Action(client.name, 0, "close"))
        del self.told[:]

    def _mirror(self) -> None:
        """Have all queues mirrored. Quorum queues and streams have replicas without the policy."""
        self.set_policy(next(iter(self.nodes)), self.plan.replicas)
        self.until(lambda: all(map(_has_policy, self.nodes)), READY_SECONDS, lambda: "the policy is not everywhere")

    def set_policy(self, node: ClusterNode, replicas: int) -> None:
        """Have this node set the policy of mirrored queues; 0 replicas are one on each node."""
        mode = {"ha-mode": "exactly", "ha-params": replicas} if replicas else {"ha-mode": "all"}
        definition = json.dumps({**mode, "ha-min-in-sync": self.plan.floor})
        node.begin_operation("set_policy", name="mirrors", pattern="", definition=definition)

    def perform(self, action: Action) -> None:
        """Do an action, and take its `then` steps, fewer if nothing happens for a while."""
        if action.who in self.clients:
            self.clients[action.who].do(action)
        else:
            self.faults.do(action)
            self.faults.changed()
        until = self.world.time + IDLE_SECONDS
        for _ in range(action.then):
            if not self.world.step(until):
                break

    def until(self, condition: Callable[[], bool], seconds: float, failure: Callable[[], str]) -> None:
        """Run until `condition` holds. Raises PromiseBroken with the text `failure` if it does not in time."""
        if not self.world.run_until(condition, seconds):
            raise PromiseBroken(f"{seconds:.0f} s are not enough: {failure()}")

    # -- the end ---

    def finish(self) -> None:
        """Heal everything, and check what is left. From here on every request must be answered."""
        self.world.sweep_interval = SWEEP_INTERVAL
        self.faults.heal()
        self._become_whole()
        self._answered([*self.clients.values()])
        for name in CLIENTS:
            self.clients[name].do(Action(name, 0, "close"))
        self._answered([*self.clients.values()])
        self._have_equal_replicas()
        self.faults.is_disturbed = False
        drained = {queue: self._drain(queue) for queue in self.plan.queues}
        self.ledger.check_drained(drained, self._drain(DEAD_LETTERS) if self.plan.has_dead_letters else ())
        self.until(self.checks.are_level, WHOLE_SECONDS, lambda: "some nodes have applied less of the log than others")
        # A replica that has just got everything may still join its ring, which is one more entry.
        self.world.run_until(self.checks.are_equal, WHOLE_SECONDS)
        self.checks.check_equal()
        # The home of a queue shows it later than the others if its client has left before the declare was answered.
        self.world.run_until(self.checks.have_same_queues, WHOLE_SECONDS)
        # A node that has just gone on after a pause may lose its lease until the leader's next grant.
        self._become_whole()
        self.ledger.check_queues([node.name for node in self.nodes], self._has)

    def _have_equal_replicas(self) -> None:
        """Check that every replica comes to be in its ring, and that all have the same messages then (I7, I12)."""
        self.until(self.checks.are_in_sync, WHOLE_SECONDS, lambda: "some replicas have not come to be in sync")
        end = self.world.time + ANSWER_SECONDS
        while differing := self.checks.differing():
            if self.world.time > end:
                raise PromiseBroken(differing)
            self.world.run(0.1)
            self.until(self.checks.are_in_sync, WHOLE_SECONDS, lambda: "some replicas have not come to be in sync")

    def become_whole(self) -> None:
        """Run until all nodes run and are connected, and all replicas are in sync."""
        self._become_whole()
        self.until(self.checks.are_in_sync, WHOLE_SECONDS, lambda: "some replicas have not come to be in sync")

    def _become_whole(self) -> None:
        self.until(self.faults.are_well, WHOLE_SECONDS, self._who_is_not_well)

    def _who_is_not_well(self) -> str:
        return "the healed cluster is not whole: " + ", ".join(
            f"{node.name} {'serves clients' if node.routing is not None else 'serves no clients'}"
            for node in self.nodes
        )

    def _answered(self, clients: list[ClusterClient]) -> None:
        self.until(
            lambda: not any(client.waits_for() for client in clients),
            ANSWER_SECONDS,
            lambda: "; ".join(filter(None, (client.waits_for() for client in clients))),
        )

    def _drain(self, queue: str) -> list[LedgerCopy]:
        """Take everything out of the queue, through some node, and acknowledge it. Of a stream, read everything."""
        auditor = self.clients[AUDITOR]
        auditor.letter = self.plan.letters[self.world.below(len(self.plan.letters))]
        read = self._read(auditor, queue)
        taken: list[LedgerCopy] = []
        end = self.world.time + ANSWER_SECONDS
        while True:
            self._answered([auditor])
            if not auditor.consumes_from(queue):
                # An operator may have ordered a move long ago that is carried out only now. That cancels the consumers
                # of a stream, and this one reads the stream again from its beginning.
                auditor.settle_all()
                taken = []
                auditor.do(Action(AUDITOR, CONSUMING, "consume", {"queue": queue}))
                self._answered([auditor])
            taken += auditor.settle_all()
            auditor.do(Action(AUDITOR, CONSUMING, "look", {"queue": queue}))
            self._answered([auditor])
            more = auditor.settle_all()
            taken += more
            if not more and auditor.has_found(len(taken) if self.plan.queue_type == STREAM else 0):
                break
            if self.world.time > end:
                raise PromiseBroken(f"{queue} cannot be emptied")
            self.world.run(0.1)
        auditor.do(Action(AUDITOR, 0, "close"))
        self._answered([auditor])
        if read is not None and {copy.message.key for copy in taken} != {copy.message.key for copy in read}:
            raise PromiseBroken(f"{queue} has {len(taken)} messages, and {len(read)} of them could be read by number")
        return taken

    def _read(self, auditor: ClusterClient, queue: str) -> list[LedgerCopy] | None:
        """What the auditor finds in the queue when it reads it by number; None if the plan has no readers."""
        if queue == DEAD_LETTERS or not any(action.what == "read" for action in self.plan.actions):
            return None
        auditor.do(Action(AUDITOR, READING, "read", {"queue": queue}))
        self._answered([auditor])
        return auditor.found_messages()

    def _has(self, node: str, queue: str) -> bool:
        for each in self.nodes:
            if each.name == node:
                routing = each.routing
                return routing is not None and routing.queue("/", queue) is not None
        return False

    def close(self) -> None:
        """End the nodes and remove their files."""
        self._is_running = False
        self.nodes.close()

    def _after_step(self) -> None:
        if self._is_running:
            self.faults.after_step()
            self.checks.after_step()


def _has_policy(node: ClusterNode) -> bool:
    supervisor = node.supervisor
    return supervisor is not None and supervisor.context.definitions.policies_of("/") is not None


def run(seed: int, plan: ClusterPlan | None = None, chooser: Chooser | None = None) -> ScheduleOutcome[ClusterPlan]:
    """Run the schedule of that seed, or the given plan in the order of the seed or of the chooser."""
    if plan is None:
        plan = draw_cluster_plan(SeedChooser(seed).below)
    schedule = ClusterSchedule(plan, seed, chooser)
    failure = None
    try:
        schedule.run()
    except (AssertionError, Violation) as error:
        failure = str(error) or repr(error)
    except Exception as error:  # a check failed itself, because a process is in a state that it does not expect
        failure = repr(error)
    story = story_of(schedule.told, failure)
    return ScheduleOutcome(plan, seed if chooser is None else None, failure, story, schedule.world.steps)
