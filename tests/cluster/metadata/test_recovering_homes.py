"""Queues that are declared at a home which still recovers its other queues (CL-34)."""

from __future__ import annotations

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import ChangeNodes

from . import group as stubs
from .group import Group, StubNode, V

#: Seconds that the recovery of a virtual host takes.
SECONDS = 5.0


class SlowNode(StubNode):
    async def on_start_vhost(self, sender, name, rows, kept):
        await self.sleep(SECONDS)
        return await super().on_start_vhost(sender, name, rows, kept)


@pytest.fixture
def recovering(monkeypatch):
    """A group, and a member of it that has started again: it counts as up, and recovers its queues."""
    with Group() as group:
        leader = group.wait_for_leader()
        home = next(member for member in group.members if member is not leader)
        for member in group.members:
            if member is not home:
                member.ask(member.declare(f"of {member.name}"))
        home.kill()
        monkeypatch.setattr(stubs, "StubNode", SlowNode)
        home.boot()
        group.until(lambda: V in home.routing.recovering)
        leader.ask(to_metadata.change_definitions(ChangeNodes(up=(home.run_of(),))))
        yield group, leader, home


def test_a_queue_is_started_when_the_others_are_recovered(recovering):
    """The home had no supervisor for its processes yet, took that for a virtual host that is down, and deleted the
    queue: the client lost its connection with 541.
    """
    group, leader, home = recovering
    asked = leader.begin(leader.declare("q", **{"x-queue-master-locator": "min-masters"}))
    group.world.run(1.0)
    assert leader.process.state.queue(V, "q").node == home.name
    assert V in home.routing.recovering and not asked.is_here
    group.until(lambda: asked.is_here)
    row, is_new = asked.value()
    assert is_new and row.node == home.name
    assert home.routing.queue(V, "q").queue_id == row.queue_id
    group.check_equal()
