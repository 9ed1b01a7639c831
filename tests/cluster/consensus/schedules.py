"""Random schedules of a `World`: steps that lose, double, delay and reorder messages, and crash nodes.

A schedule is a seed; the seed gives the kind of world and every step. `run` returns what went wrong, if anything did.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from warren.cluster.consensus.membership import Members

from .world import Refused, Violation, World

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
    """One run: its world, and the steps that may be drawn."""

    def __init__(self, seed: int, is_told: bool = False) -> None:
        self.random = random.Random(seed)
        voters, learners, witnesses, strangers = self.random.choice(WORLDS)
        self.story: list[str] = []
        self.told: Callable[[str], None] = self.story.append if is_told else lambda line: None
        self.world = World(
            Members(voters, learners, witnesses),
            lambda _, low, high: self.random.randint(low, high),
            self.told,
            strangers,
        )
        self.names = list(self.world.nodes)
        self.serial = 0
        #: Half of the schedules have nodes whose clocks go alike.
        self.is_in_step = self.random.random() < 0.5
        self.loss = self.random.choice([0, 0, 0.1, 0.3])
        #: How often a message overtakes those before it.
        self.disorder = self.random.choice([0, 0.2, 0.8])
        self.steps = 0

    def run(self) -> None:
        """Let the nodes elect somebody, or not; take steps; then lose nothing any more. Raises Violation and others."""
        if self.random.random() < 0.7:
            self.world.heal(25)
        for _ in range(self.random.choice([30, 60, 120])):
            self.steps += 1
            self.step()
        self.settle_down()

    def step(self) -> None:
        for _ in range(self.random.randint(0, 6)):
            self.message()
        chosen = self.random.choices(STEPS, WEIGHTS)[0]
        self.told(f"-- {chosen.__name__}")
        chosen(self)

    def message(self) -> None:
        """One message arrives, arrives twice, or is lost; or one write ends."""
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
        """Whom a client asks: mostly the leader."""
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

    def wait_long(self) -> None:
        """One node, or all, wait until an election is due."""
        if self.is_in_step:
            for _ in range(self.random.randint(10, 45)):
                self.world.tick_all()
        elif self.live():
            name = self.random.choice(self.live())
            for _ in range(self.random.randint(10, 45)):
                self.world.tick(name)

    def quiet(self) -> None:
        """Everything arrives and is written."""
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

    def start(self) -> None:
        down = [name for name in self.names if self.world.nodes[name].raft is None]
        for name in down:
            if self.random.random() < 0.7:
                self.world.start(name)

    def cut(self) -> None:
        """A node, or one direction of one connection, is cut off."""
        one = self.random.choice(self.names)
        others = [name for name in self.names if name != one]
        if self.random.random() < 0.5:
            self.world.cut |= {(one, other) for other in others} | {(other, one) for other in others}
        else:
            self.world.cut.add((one, self.random.choice(others)))

    def mend(self) -> None:
        self.world.cut.clear()

    def lose_everything(self) -> None:
        """All connections break: what is in flight is lost, and leaders learn of it."""
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
        except Refused:
            pass

    # -- the end ---

    def settle_down(self) -> None:
        """Nothing is lost any more: a leader is elected, a command is committed, and all members apply the same."""
        world = self.world
        self.told("-- nothing is lost any more")
        world.heal(100)
        for _ in range(40):
            leader = world.leader()
            if leader is not None:
                try:
                    index = world.propose(leader.name, b"the last")
                    break
                except Refused:
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


S = Schedule
STEPS = [
    S.write, S.tick, S.wait_long, S.quiet, S.propose, S.change, S.transfer, S.barrier, S.crash, S.start, S.cut, S.mend,
    S.lose_everything, S.compact,
]  # fmt: skip
WEIGHTS = [20, 20, 6, 6, 20, 6, 2, 4, 6, 8, 5, 5, 2, 5]


def run(seed: int) -> Failure | None:
    """Run the schedule of this seed."""
    schedule = Schedule(seed)
    try:
        schedule.run()
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        return Failure(seed, schedule.steps, error, [])
    return None


def told(seed: int) -> list[str]:
    """The story of the schedule of this seed, up to where it fails."""
    schedule = Schedule(seed, is_told=True)
    try:
        schedule.run()
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        schedule.story.append(f"{type(error).__name__}: {error}")
    return schedule.story
