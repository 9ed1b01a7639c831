"""`ClusterFaults`: what happens to the machines of a cluster and to the network between them.

It has a method `do_…` for each action of a plan that is a machine's or the network's. After each step of the world it
finds the nodes that have ended. It stops and boots again each node that the cluster has declared down, as the program
`warren` does in reality.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ...cluster.membership.majority.lease import CONTACT_SHARE, HEARD_SECONDS, LEASE_SHARE
from ..disks import ChosenRandom
from ..model.copies import PromiseBroken
from ..plan import Action
from .nodes import ClusterNode, node_name
from .plan import ALL, ROLES

if TYPE_CHECKING:
    from .schedule import ClusterSchedule

VHOST = "/"

#: Stands for the last moment at which two nodes reached each other if they still do. Later than every other moment.
NOW = float("inf")

#: Virtual seconds that a node may take to stop before its process is killed.
STOP_SECONDS = 61.0


class ClusterFaults:
    """See the module.

    is_disturbed    something has happened because of which connections may end, and publishes may be refused
    has_promoted    an operator has moved masters, which ends the consumers of a stream, and nothing else
    alone           by node that is cut off from a majority, the last moment at which it was not: it reached enough
                    nodes to lead, though not necessarily all at once, or it reached a node that did so and may lead
    """

    def __init__(self, schedule: ClusterSchedule) -> None:
        self.schedule = schedule
        self.world = schedule.world
        self.nodes = schedule.nodes
        self.is_disturbed = self.has_promoted = False
        self.alone: dict[str, float] = {}
        #: The pairs of nodes that reach each other, and for each other pair the last moment at which it did.
        self._reaches: set[tuple[str, str]] = set()
        self._reached: dict[tuple[str, str], float] = {}
        #: The nodes that are down on purpose, and by node that is stopping, the time at which its process is killed if
        #: it has not stopped by then.
        self._down: set[str] = set()
        self._stopping: dict[str, float] = {}
        #: Milliseconds for which a node stays down after a power cut in the middle of a write, or after a stop.
        self._down_for: dict[str, int] = {}
        #: How often each machine was paused or its disk was filled. The planned end of a fault compares this count with
        #: its own, so that it does not end a later fault of the same kind.
        self._times: dict[tuple[str, str], int] = {}
        self._full: set[str] = set()
        #: Whether a disk was full, so that a process may get that error.
        self._was_full = False
        #: The rate of the slowest clock that any machine had.
        self._slowest_clock = 1.0
        self._seen_crashes = 0

    @property
    def lease(self) -> float:
        """Seconds for which a node that reaches no majority any more may still act.

        Of four nodes, two may still reach each other. If one of them leads, it grants leases to the other one for a
        while yet.
        """
        lasts = LEASE_SHARE * self.nodes["a"].settings.net_ticktime
        if self.nodes.majority > 2:
            lasts += CONTACT_SHARE * HEARD_SECONDS
        return lasts / self._slowest_clock

    def do(self, action: Action) -> None:
        """Do an action of the plan."""
        do = getattr(self, "do_" + action.what.replace("-", "_"))
        if action.who == ALL:
            for node in self.nodes:
                do(node, action)
        elif action.who in (*self.nodes.letters, *ROLES):
            do(self.nodes[self._machine(action.who)], action)
        else:
            do(action)

    def _machine(self, name: str) -> str:
        """The letter of this machine, or of the one that has this role now as most nodes see it."""
        if name not in ROLES:
            return name
        letters = self.nodes.letters
        views = [(node, self.schedule.checks.view(node)) for node in self.nodes if node.routing is not None]
        leaders = {node.letter: view.leads_in for node, view in views if view.leads_in is not None}
        leader = max(leaders, key=lambda letter: leaders[letter] or 0, default=letters[0])
        if name in ("leader", "follower"):
            return leader if name == "leader" else next(each for each in letters if each != leader)
        rows = [
            node.routing.queue(VHOST, self.schedule.plan.queues[0]) for node, _ in views if node.routing is not None
        ]
        groups = [row.group for row in rows if row is not None and row.group is not None]
        if not groups:
            raise ValueError(f"no queue is mirrored, so no machine is the {name}")
        latest = max(groups, key=lambda group: group.epoch)
        ring = [member.node.rpartition("@")[2] for member in latest.ring]
        if name == "learner":
            return next((letter for letter in letters if letter not in ring), ring[-1])
        return {"master": ring[0], "second": ring[min(1, len(ring) - 1)], "last": ring[-1]}[name]

    def _disturb(self, text: str) -> None:
        self.is_disturbed = True
        self.schedule.ledger.acks_may_be_lost()
        self.schedule.tell("cluster", text)

    def changed(self) -> None:
        """Find out which nodes reach a majority now, and report to the ledger those that have lost or regained one."""
        time, ledger, letters = self.world.time, self.schedule.ledger, self.nodes.letters
        self._reached.update(dict.fromkeys(self._reaches, time))
        pairs = [(one, other) for one in letters for other in letters if one != other]
        self._reaches = {pair for pair in pairs if self.nodes.reach(*pair)}
        until = {pair: NOW if pair in self._reaches else self._reached.setdefault(pair, time) for pair in pairs}
        leads = {letter: self._until_majority(letter, until) for letter in letters}
        for letter in letters:
            follows = [min(until[letter, other], leads[other]) for other in letters if other != letter]
            since = max(leads[letter], *follows)
            if since == NOW:
                if self.alone.pop(letter, None) is not None:
                    ledger.together([node_name(letter)])
            elif self.alone.get(letter) != since:
                self.alone[letter] = since
                ledger.alone([node_name(letter)], self.lease - (time - since))

    def _until_majority(self, letter: str, until: dict[tuple[str, str], float]) -> float:
        """The last moment at which a majority could answer what this node had sent, not necessarily all of them at
        once: a node that stood still answers old requests when it goes on, and others may be unreachable by then.
        """
        reached = sorted((until[letter, other] for other in self.nodes.letters if other != letter), reverse=True)
        return reached[self.nodes.majority - 2]

    # -- machines ---

    def do_kill(self, node: ClusterNode, action: Action) -> None:
        if node.is_running:
            self._disturb(f"{node.name} is killed")
            node.kill()
            self._went_down(node, action.number("for"))

    def do_power_cut(self, node: ClusterNode, action: Action) -> None:
        if not node.is_running:
            return
        assert node.disks is not None
        self._down_for[node.letter] = action.number("for")
        if action.number("after"):
            node.disks.cut_power_after(action.number("after"))
        else:
            self._lose_power(node)

    def _lose_power(self, node: ClusterNode) -> None:
        self._disturb(f"{node.name} loses power")
        node.lose_power()
        for client in self.schedule.clients.values():
            if client.node == node.name:
                client.on_power_cut()
        self._went_down(node, self._down_for.pop(node.letter, 0))

    def do_stop(self, node: ClusterNode, action: Action) -> None:
        if node.is_running and node.is_up and node.letter not in self._stopping:
            self._disturb(f"{node.name} is stopped")
            self._begin_stop(node, action.number("for"))

    def _begin_stop(self, node: ClusterNode, down_for: int) -> None:
        self._down_for[node.letter] = down_for
        self._stopping[node.letter] = self.world.time + STOP_SECONDS
        node.begin_stop()

    def is_stopping(self, node: ClusterNode) -> bool:
        """Whether the node stops in order."""
        return node.letter in self._stopping

    def do_pause(self, node: ClusterNode, action: Action) -> None:
        if node.is_running:
            self._disturb(f"{node.name} does nothing for {action.number('for')} ms")
            node.machine.pause()
            self._later(node, "pause", action.number("for"), self._resume)

    def do_disk(self, node: ClusterNode, action: Action) -> None:
        assert node.disks is not None
        self._disturb(f"the disk of {node.name} is full for {action.number('for')} ms")
        self._was_full = True
        self._full.add(node.letter)
        node.disks.fill(True)
        self._later(node, "disk", action.number("for"), self._free)

    def do_slow_disk(self, node: ClusterNode, action: Action) -> None:
        delay = action.number("delay")
        self._disturb(f"the disk of {node.name} takes {delay} ms longer for {action.number('for')} ms")
        node.machine.blocking_delay = delay / 1000
        self._later(node, "slow-disk", action.number("for"), self._quicken)

    def _quicken(self, node: ClusterNode) -> None:
        node.machine.blocking_delay = 0.0

    def do_clock(self, node: ClusterNode, action: Action) -> None:
        self.schedule.tell("cluster", f"the clock of {node.name} jumps by {action.number('by')} ms")
        node.machine.clock_offset += action.number("by") / 1000

    def do_clock_rate(self, node: ClusterNode, action: Action) -> None:
        percent = action.number("percent")
        self.schedule.tell("cluster", f"the clocks of {node.name} run at {percent} % of their right speed")
        node.machine.set_clock_rate(percent / 100)
        self._slowest_clock = min(self._slowest_clock, percent / 100)

    def do_wipe(self, node: ClusterNode, action: Action) -> None:
        self._disturb(f"{node.name} loses its disk, and starts with an empty one")
        node.kill()
        node.wipe()
        self._went_down(node, action.number("for"))

    def do_policy(self, node: ClusterNode, action: Action) -> None:
        replicas = action.number("replicas")
        self._disturb(f"an operator wants {replicas or 'all'} replicas")
        self.schedule.set_policy(node, replicas)

    def do_rebalance(self, node: ClusterNode, action: Action) -> None:
        self.schedule.tell("cluster", "an operator has the masters spread over the nodes")
        self.has_promoted = True
        self.schedule.ledger.acks_may_be_lost()
        node.begin_operation("rebalance", kind="all", vhost_pattern="", queue_pattern="")

    def do_promote(self, node: ClusterNode, action: Action) -> None:
        queue = action.text("queue")
        self.schedule.tell("cluster", f"an operator has {node.name} lead {queue}")
        self.has_promoted = True
        # A master that hands over to another replica comes to rest first, and acks that are in flight to it then are
        # lost.
        self.schedule.ledger.acks_may_be_lost()
        node.begin_operation("promote", name=queue, vhost=VHOST, node=node.name)

    def _later(self, node: ClusterNode, what: str, milliseconds: int, end: object) -> None:
        key = node.letter, what
        times = self._times[key] = self._times.get(key, 0) + 1

        def ends() -> None:
            if self._times[key] == times:
                end(node)  # type: ignore[operator]
                self.changed()

        self.world.at(self.world.time + milliseconds / 1000, ends)

    def _resume(self, node: ClusterNode) -> None:
        if node.machine.is_paused:
            self.schedule.tell("cluster", f"{node.name} goes on")
            node.machine.resume()

    def _free(self, node: ClusterNode) -> None:
        assert node.disks is not None
        if node.letter in self._full:
            self.schedule.tell("cluster", f"there is room on the disk of {node.name}")
            self._full.discard(node.letter)
            node.disks.fill(False)

    def _went_down(self, node: ClusterNode, milliseconds: int) -> None:
        """Have a node that has ended started again after `milliseconds`."""
        self._stopping.pop(node.letter, None)
        self._down.add(node.letter)
        self._later(node, "down", milliseconds, self._boot)

    def _boot(self, node: ClusterNode) -> None:
        if not node.is_running:
            assert node.disks is not None
            self.schedule.tell("cluster", f"{node.name} starts")
            self._down.discard(node.letter)
            node.disks.heal()
            node.boot()

    # -- the network ---

    def do_isolate(self, action: Action) -> None:
        letter = self._machine(action.text("node"))
        self._disturb(f"{node_name(letter)} is cut off from all others")
        for other in self.nodes.letters:
            if other != letter:
                self.nodes.cut(letter, other)
                self.nodes.cut(other, letter)

    def do_cut(self, action: Action) -> None:
        source, target = self._ends(action)
        self._disturb(f"{node_name(source)} and {node_name(target)} do not hear each other")
        self.nodes.cut(source, target)
        self.nodes.cut(target, source)

    def do_mute(self, action: Action) -> None:
        source, target = self._ends(action)
        self._disturb(f"{node_name(target)} does not hear {node_name(source)}")
        self.nodes.cut(source, target)

    def do_slow(self, action: Action) -> None:
        (source, target), delay = self._ends(action), action.number("delay")
        self._disturb(f"what {node_name(source)} sends to {node_name(target)} takes up to {delay} ms")
        self.nodes.link(source, target).max_delay = delay / 1000

    def _ends(self, action: Action) -> tuple[str, str]:
        return self._machine(action.text("from")), self._machine(action.text("to"))

    def do_heal(self, action: Action) -> None:
        self.heal()

    def do_rest(self, action: Action) -> None:
        self.heal()
        self.schedule.become_whole()
        self.schedule.tell("cluster", "all nodes and all replicas are well")
        self.schedule.ledger.is_well()

    def do_wait(self, action: Action) -> None:
        end = self.world.time + action.number("for") / 1000
        while self.world.time < end and self.world.step(end):
            pass

    def heal(self) -> None:
        """Let everything run and pass again."""
        if self.is_disturbed:
            self.schedule.tell("cluster", "everything is well again")
        self.nodes.mend(self.world.conditions.link_delay)
        for node in self.nodes:
            assert node.disks is not None
            node.disks.heal()
            if node.machine.is_paused:
                self._resume(node)
            self._quicken(node)
            self._free(node)
            if node.letter in self._down:
                self._boot(node)
        self.changed()

    # -- after each step ---

    def after_step(self) -> None:
        """See which nodes have ended or crashed. Raises PromiseBroken if that had no reason."""
        if len(self.world.crashes) > self._seen_crashes:
            self._check_crashes()
        for node in self.nodes:
            if node.letter in self._down:
                continue
            base = node.base
            if base is None:
                self._lose_power(node)
            elif node.letter in self._stopping:
                if node.has_stopped or base.living == 0 or self.world.time > self._stopping[node.letter]:
                    node.kill()
                    self._went_down(node, self._down_for.pop(node.letter, 0))
            elif node.letter not in self._full and self._is_vhost_down(node):
                # It was started on a full disk. An operator starts it again when there is room.
                self._disturb(f"{node.name} is stopped, for its virtual host is down")
                self._begin_stop(node, 0)
            elif node.begins_anew:
                self._disturb(f"{node.name} was declared down and begins another run")
                self._begin_stop(node, 0)
            elif base.living == 0:
                self._ended(node)
            else:
                continue
            self.changed()

    def _is_vhost_down(self, node: ClusterNode) -> bool:
        """Whether the node runs but its virtual host does not, because the node started when its disk was full."""
        supervisor = node.supervisor if self._was_full else None
        return supervisor is not None and node.is_up and VHOST in supervisor.routing.down

    def _ended(self, node: ClusterNode) -> None:
        """Handle a node that ended by itself. Only a node that cannot start because its disk is full may do so."""
        if not self._was_full:
            reason = "" if node.starting is None or not node.starting.is_here else f": {_error(node)}"
            raise PromiseBroken(f"{node.name} has ended by itself{reason}")
        self._disturb(f"{node.name} has ended, for its disk is full")
        node.kill()
        self._went_down(node, 100)

    def _check_crashes(self) -> None:
        for address, error in self.world.crashes[self._seen_crashes :]:
            if not (isinstance(error, OSError) and error.errno == errno.ENOSPC and self._was_full):
                raise PromiseBroken(f"process {address} crashed by itself: {type(error).__name__}: {error}") from error
        self._seen_crashes = len(self.world.crashes)

    # -- rest ---

    def are_well(self) -> bool:
        """Whether every node runs, serves clients, and sees all others up and all queues running."""
        if self._down or self._stopping or self._full:
            return False
        for node in self.nodes:
            routing = node.routing
            supervisor = node.supervisor
            if routing is None or supervisor is None or node.begins_anew or not node.listens:
                return False
            if self._is_vhost_down(node):
                return False
            if any(row.state != "running" for row in routing.queues(VHOST)):
                return False
            known = {record.name: record.incarnation for record in supervisor.context.definitions.nodes.values()}
            for other in self.nodes:
                assert other.base is not None
                if f"{other.name}-{known.get(other.name)}" != other.base.name:
                    return False
        return True

    def random(self) -> ChosenRandom:
        """What decides how much a power cut leaves."""
        return ChosenRandom(self.world.below)


def _error(node: ClusterNode) -> str:
    try:
        return str(node.is_up)
    except Exception as error:
        return str(error)
