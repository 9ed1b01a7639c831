"""Random schedules: three nodes declare, bind and delete, while nodes are killed and links are cut.

At the end of each schedule all nodes run and all links are up, and then these hold:

- All nodes have the same state, including the part that serves only the log, and their routing tables show it.
- A queue whose declare was answered exists, and one whose delete was answered does not, unless another change of the
  same name may have come between.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import ChangeNodes
from warren.amqp.errors import AmqpError
from warren.runtime.errors import ProcessDown
from warren.runtime.sim.world import SimWorld

from .group import Group, Member, V

SEEDS = range(12)
STEPS = 40
NAMES = "pqrs"


class Schedule:
    """One schedule, which `seed` decides completely."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group = Group(world=SimWorld(seed))
        #: Each change: name, verb, answer, and the steps at which it was begun and its answer was first seen.
        self.changes: list[dict[str, Any]] = []
        self.step = 0

    def run(self) -> None:
        steps = [self.change] * 8 + [self.wait] * 6 + [self.kill, self.restart, self.restart, self.cut, self.mend]
        try:
            for self.step in range(STEPS):
                self.random.choice(steps)()
                self.note_answers()
            self.end()
        finally:
            self.group.close()

    # -- steps ---

    def change(self) -> None:
        running = self.group.running()
        if not running:
            return
        member, name = self.random.choice(running), self.random.choice(NAMES)
        verb = self.random.choice(("declare", "declare", "bind", "delete"))
        if verb == "declare":
            message = member.declare(name, durable=True)
        elif verb == "bind":
            message = member.bind(name, "amq.fanout")
        else:
            message = to_metadata.delete_queue(V, name, False, False, "c")
        self.changes.append(
            {"name": name, "verb": verb, "answer": member.begin(message), "begun": self.step, "answered": None}
        )

    def wait(self) -> None:
        if self.random.random() < 0.5:
            self.group.world.run_steps(self.random.randrange(1, 60))
        else:
            self.group.world.run(self.random.choice((0.01, 0.2, 1.0, 3.0)))

    def kill(self) -> None:
        if len(self.group.running()) > 1:
            self.random.choice(self.group.running()).kill()

    def restart(self) -> None:
        down = [member for member in self.group.members if not member.is_up]
        if down:
            self.random.choice(down).boot()

    def cut(self) -> None:
        one = self.random.choice(self.group.members).name
        self.group.world.partition([one], [member.name for member in self.group.members if member.name != one])

    def mend(self) -> None:
        self.group.world.mend()

    def note_answers(self) -> None:
        for change in self.changes:
            if change["answered"] is None and change["answer"].is_here:
                change["answered"] = self.step

    # -- the end ---

    def end(self) -> None:
        group = self.group
        group.world.mend()
        for member in group.members:
            if not member.is_up:
                member.boot()
        group.until(lambda: all(member.has_started for member in group.members))
        group.until(lambda: all(change["answer"].is_here for change in self.changes), 60.0)
        leader = group.wait_for_leader()
        self.note_answers()
        group.wait_until_level()
        # The old runs of killed nodes end now, so a change that one of them has proposed can take effect no longer.
        leader.ask(to_metadata.change_definitions(ChangeNodes(up=tuple(each.run_of() for each in group.members))))
        group.check_equal()
        for member in group.members:
            self.check_table(member)
        for name in NAMES:
            self.check_name(name, name in leader.queues())

    def check_table(self, member: Member) -> None:
        """Assert that the routing table has the state's queues, and that each queue at home here has a process."""
        rows = member.process.state.vhosts[V].queues
        shown = {row.name: row for row in member.routing.queues(V)}
        group = self.group
        group.until(lambda: {row.name for row in member.routing.queues(V)} == set(rows))
        assert {row.queue_id for row in member.routing.queues(V)} == {row.queue_id for row in rows.values()}, shown

    def check_name(self, name: str, is_there: bool) -> None:
        """Assert that the queue exists or not, as its last change demands, if it is certain which change
        was the last.
        """
        about = [change for change in self.changes if change["name"] == name and change["verb"] != "bind"]
        certain = [change for change in about if outcome_of(change) == "done"]
        if not certain:
            return
        last = max(certain, key=lambda change: change["begun"])
        # Changes that ended after this one began, or may have taken effect then, may be later ones.
        rivals = [
            other
            for other in about
            if other is not last
            and outcome_of(other) != "refused"
            and (outcome_of(other) == "unknown" or other["answered"] >= last["begun"])
        ]
        if not rivals:
            assert is_there == (last["verb"] == "declare"), (name, last)


def outcome_of(change: dict[str, Any]) -> str:
    """`done` or `refused`, or `unknown` if the node died or gave no answer in time."""
    try:
        answer = change["answer"].value()
        if change["verb"] == "declare" and not answer[1]:
            # This node may lack the latest changes: without `Members` it has no lease that would keep it from
            # answering.
            return "unknown"
    except ProcessDown:
        return "unknown"
    except AmqpError as error:
        return "unknown" if error.code == 541 else "refused"
    return "done"


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_agree_whatever_happens(seed):
    Schedule(seed).run()
