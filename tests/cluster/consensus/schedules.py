"""Random schedules of a `World`: steps that lose, double, delay and reorder messages, and crash nodes.

A seed decides the whole schedule, from the nodes of its world to every step. `run` returns the failure, if there was
one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

from warren.cluster.consensus import leader
from warren.cluster.consensus.election import HEARD_TICKS
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.consensus.messages import PreVote, PreVoteAnswer, Vote, VoteAnswer

from .world import ProposalRefused, Violation, World

#: Nodes of the worlds: voters, learners, witnesses, strangers. A witness is also a voter.
WORLDS = [
    (("a", "b", "c"), (), (), ()),
    (("a", "b", "c"), (), ("c",), ("d",)),
    (("a", "b", "c", "d"), (), (), ()),
    (("a", "b", "c", "d", "e"), (), (), ()),
    (("a", "b"), ("c",), (), ()),
    (("a",), ("b",), (), ("c",)),
]


class Failure(NamedTuple):
    seed: int
    steps: int
    error: BaseException
    story: list[str]


class Schedule:
    """One schedule: its world, its steps, and how often each step is taken."""

    def __init__(self, seed: int, is_told: bool = False) -> None:
        self.random = random.Random(seed)
        voters, learners, witnesses, strangers = self.random.choice(WORLDS)
        self.story: list[str] = []
        self.told: Callable[[str], None] = self.story.append if is_told else lambda line: None
        self.world = World(
            RaftMembers(voters, learners, witnesses),
            lambda _, low, high: self.random.randint(low, high),
            self.told,
            strangers,
        )
        self.names = list(self.world.nodes)
        self.serial = 0
        #: Whether all nodes tick together, as in half of the schedules; only then does the world check the law of
        #: contact.
        self.is_in_step = self.random.random() < 0.5
        self.loss = self.random.choice([0, 0, 0.1, 0.3])
        #: How often a message overtakes those before it.
        self.disorder = self.random.choice([0, 0.2, 0.8])
        self.weights = self.random.choice(PROFILES)
        self.steps = 0

    def run(self) -> None:
        """Elect a leader or not, take steps, and then repair everything. Raises Violation if a law is broken."""
        # In half of the schedules an append has only one entry.
        with mock.patch.object(leader, "APPEND_BYTES", self.random.choice([1, leader.APPEND_BYTES])):
            if self.random.random() < 0.7:
                self.world.heal(25)
            for _ in range(self.random.choice([20, 40, 80])):
                self.steps += 1
                self.step()
            if self.random.random() < 0.3:
                self.settle_down()

    def step(self) -> None:
        for _ in range(self.random.randint(0, 6)):
            self.message()
        (chosen,) = self.random.choices(STEPS, self.weights)
        self.told(f"-- {chosen.__name__}")
        chosen(self)

    def message(self) -> None:
        """One message arrives, arrives twice, or is lost; or one node finishes a write."""
        world, draw = self.world, self.random
        if not world.in_flight:
            return
        at = draw.randrange(len(world.in_flight)) if draw.random() < self.disorder else 0
        message = world.in_flight.pop(at)
        if draw.random() < self.loss:
            world.lose(message)
            return
        if draw.random() < 0.05:
            world.in_flight.append(message)
        world.deliver(message)

    def live(self) -> list[str]:
        return [name for name in self.names if self.world.nodes[name].raft is not None]

    def asked(self) -> str | None:
        """The node that a client asks, which mostly is the leader; None if no node runs."""
        leader = self.world.leader()
        live = self.live()
        if leader is not None and self.random.random() < 0.9:
            return leader.name
        return self.random.choice(live) if live else None

    # -- steps ---

    def write(self) -> None:
        writing = [name for name in self.live() if self.world.nodes[name].writing is not None]
        for name in writing:
            if self.random.random() < 0.7:
                self.world.finish_write(name)

    def tick(self) -> None:
        for _ in range(self.random.choice([1, 1, 3, 10])):
            if self.is_in_step:
                self.world.tick_all()
            else:
                for name in self.live():
                    if self.random.random() < 0.7:
                        self.world.tick(name)
            self.write()

    def settle(self) -> None:
        """Time passes, and all messages arrive except those of cut connections."""
        if not self.is_in_step:
            return self.tick()
        for _ in range(self.random.randint(5, 30)):
            self.world.tick_all()
            self.world.run()

    def wait_long(self) -> None:
        """So much time passes for one node, or for all, that an election is due."""
        if self.is_in_step:
            for _ in range(self.random.randint(10, 45)):
                self.world.tick_all()
        elif self.live():
            name = self.random.choice(self.live())
            for _ in range(self.random.randint(10, 45)):
                self.world.tick(name)

    def quiet(self) -> None:
        """All messages arrive and all writes finish."""
        self.world.run()

    def propose(self) -> None:
        name = self.asked()
        if name is not None:
            for _ in range(self.random.choice([1, 1, 3])):
                self.serial += 1
                self._try(lambda: self.world.propose(name, b"c%d" % self.serial))

    def change(self) -> None:
        name = self.asked()
        if name is not None:
            other = self.random.choice(self.names)
            change = self.random.choice(
                [
                    lambda members: members.with_learner(other),
                    lambda members: members.with_voter(other),
                    lambda members: members.with_voter(other),
                    lambda members: members.without(other),
                ]
            )
            self._try(lambda: self.world.change(name, change))

    def transfer(self) -> None:
        name = self.asked()
        if name is not None:
            self._try(lambda: self.world.transfer(name))

    def barrier(self) -> None:
        if self.live():
            self.serial += 1
            self.world.barrier(self.random.choice(self.live()), self.serial)

    def crash(self) -> None:
        if self.live():
            self.world.crash(self.random.choice(self.live()), self.random.random() < 0.5)

    def crash_writer(self) -> None:
        """Crash a node in the middle of a write, so that the write is lost, and start the node again at once."""
        writing = [name for name in self.live() if self.world.nodes[name].writing is not None]
        if writing:
            name = self.random.choice(writing)
            self.world.crash(name)
            self.world.start(name)
            if not self.is_in_step and self.random.random() < 0.5:
                self.pass_time(name, HEARD_TICKS)

    def isolate_leader(self) -> None:
        """Cut the leader off. It does not know it yet, and clients still propose to it."""
        leader = self.world.leader()
        if leader is not None:
            others = [name for name in self.names if name != leader.name]
            kept = self.random.choice([None, *others])
            for other in others:
                if other != kept:
                    self.world.cut |= {(leader.name, other), (other, leader.name)}
            for _ in range(self.random.randint(0, 4)):
                self.serial += 1
                self._try(lambda: self.world.propose(leader.name, b"c%d" % self.serial))

    def rivals(self) -> None:
        """The election timeouts of some nodes expire at once, so they may become candidates of one term."""
        if self.is_in_step:
            return self.wait_long()
        rivals = self.random.sample(self.live(), min(len(self.live()), self.random.randint(1, 3)))
        for name in self.live():
            self.pass_time(name, HEARD_TICKS)
        for name in rivals:
            self.pass_time(name, HEARD_TICKS)
        self.arrive(set(self.names), (PreVote, PreVoteAnswer))
        for name in rivals:
            self.world.finish_write(name)

    def reign(self) -> None:
        """Cut a random majority off, and let one of its nodes try to become leader there. A few of that node's messages
        are received, and it may crash.
        """
        if self.is_in_step:
            return self.isolate_leader()
        world, draw = self.world, self.random
        name, *friends = draw.sample(self.names, len(self.names) // 2 + 1)
        group = {name, *friends}
        for one in self.names:
            world.cut |= {pair for other in self.names for pair in ((one, other),) if len(group & {*pair}) == 1}
        for friend in group:
            if world.nodes[friend].raft is None:
                world.start(friend)
            self.pass_time(friend, HEARD_TICKS)
        for _ in range(6):
            self.pass_time(name, 10)
            self.arrive(group, (PreVote, PreVoteAnswer, Vote, VoteAnswer))
            for friend in group:
                world.finish_write(friend)
            if world.nodes[name].live.leading is not None:
                for _ in range(draw.randint(0, 3)):
                    self.serial += 1
                    self._try(lambda: world.propose(name, b"c%d" % self.serial))
                break
        for _ in range(draw.randint(0, 10)):
            self.message()
            if draw.random() < 0.5:
                self.write()
        if draw.random() < 0.5:
            world.crash(name, draw.random() < 0.7)
        if draw.random() < 0.5:
            world.cut.clear()

    def arrive(self, group: set[str], kinds: tuple[type, ...]) -> None:
        """Deliver all messages of these kinds between these nodes, and those that they cause."""
        world = self.world
        while True:
            at = (
                number
                for number, message in enumerate(world.in_flight)
                if isinstance(message, kinds) and {message.sender, message.to} <= group
            )
            found = next(at, None)
            if found is None:
                return
            world.deliver(world.in_flight.pop(found))

    def pass_time(self, name: str, ticks: int) -> None:
        for _ in range(ticks):
            self.world.tick(name)

    def start(self) -> None:
        down = [name for name in self.names if self.world.nodes[name].raft is None]
        for name in down:
            if self.random.random() < 0.7:
                self.world.start(name)

    def cut(self) -> None:
        """Cut off a node, one connection, or one direction of a connection."""
        one = self.random.choice(self.names)
        others = [name for name in self.names if name != one]
        other = self.random.choice(others)
        whole = {pair for name in others for pair in ((one, name), (name, one))}
        cuts = [{(one, other)}, {(one, other), (other, one)}, whole]
        self.world.cut |= self.random.choice(cuts)

    def mend(self) -> None:
        self.world.cut.clear()

    def lose_everything(self) -> None:
        """All connections break: messages in flight are lost, and the leader learns that."""
        lost, self.world.in_flight = self.world.in_flight, []
        for message in lost:
            self.world.lose(message)
        leader = self.world.leader()
        if leader is not None:
            for name in self.names:
                if name != leader.name:
                    self.world.broken(leader.name, name)

    def compact(self) -> None:
        if self.live():
            self.world.compact(self.random.choice(self.live()), self.random.choice([0, 0, 2]))

    @staticmethod
    def _try(act: Callable[[], object]) -> None:
        try:
            act()
        except ProposalRefused:
            pass

    # -- the end ---

    def settle_down(self) -> None:
        """Repair everything. Then a leader must be elected, a command committed, and all members must apply
        the same.
        """
        world = self.world
        self.told("-- nothing is lost any more")
        world.heal(100)
        for _ in range(40):
            leader = world.leader()
            if leader is not None:
                try:
                    index = world.propose(leader.name, b"the last")
                    break
                except ProposalRefused:
                    pass
            world.heal(10)
        else:
            raise Violation("nobody leads for 25 s though nothing is lost")
        world.heal(40)
        leader = world.leader()
        if leader is None or index not in world.history:
            raise Violation(f"entry {index} is not committed within 2 s though nothing is lost")
        for name in leader.live.log.members.everyone:
            if world.nodes[name].state != leader.state:
                raise Violation(f"{name} has another state than {leader.name} though nothing was lost for long")


#: Each step, and how often a schedule takes it: any schedule, and one about elections, crashes, members or networks.
_TABLE = [
    (Schedule.write, 20, 10, 10, 10, 5),
    (Schedule.tick, 20, 5, 10, 10, 5),
    (Schedule.settle, 8, 2, 2, 2, 30),
    (Schedule.wait_long, 6, 10, 5, 5, 1),
    (Schedule.rivals, 2, 20, 5, 5, 0),
    (Schedule.reign, 1, 10, 20, 10, 0),
    (Schedule.quiet, 6, 1, 5, 5, 5),
    (Schedule.propose, 20, 10, 20, 5, 10),
    (Schedule.change, 6, 0, 0, 30, 1),
    (Schedule.transfer, 2, 1, 1, 1, 0),
    (Schedule.barrier, 4, 2, 2, 1, 2),
    (Schedule.crash, 6, 2, 5, 2, 4),
    (Schedule.crash_writer, 2, 10, 20, 3, 3),
    (Schedule.start, 8, 5, 8, 5, 20),
    (Schedule.cut, 5, 1, 2, 5, 15),
    (Schedule.isolate_leader, 3, 3, 5, 10, 2),
    (Schedule.mend, 5, 5, 5, 5, 5),
    (Schedule.lose_everything, 2, 3, 5, 2, 1),
    (Schedule.compact, 5, 1, 5, 2, 2),
]
STEPS = [step for step, *_ in _TABLE]
PROFILES = [list(weights) for weights in zip(*(weights for _, *weights in _TABLE))]


def run(seed: int) -> Failure | None:
    """Run the schedule of this seed, and return its failure, if it has one."""
    schedule = Schedule(seed)
    try:
        schedule.run()
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        return Failure(seed, schedule.steps, error, [])
    return None


def told(seed: int) -> list[str]:
    """The story of this seed's schedule, up to its failure."""
    schedule = Schedule(seed, is_told=True)
    try:
        schedule.run()
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        schedule.story.append(f"{type(error).__name__}: {error}")
    return schedule.story
