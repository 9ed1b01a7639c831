"""Nodes that start, and virtual hosts that start on them, while other nodes go on declaring and deleting (CL-34)."""

from __future__ import annotations

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.recovery import STARTED_AT_ONCE
from warren.actors.metadata.state.commands import ChangeNodes
from warren.amqp.fields import table_from

from . import group as stubs
from .group import Group, StubNode, V

#: Seconds that the recovery of a virtual host takes.
SECONDS = 5.0


class SlowNode(StubNode):
    """On warren@a it takes longer than on the others."""

    async def on_start_vhost(self, sender, name, rows, kept):
        await self.sleep(3 * SECONDS if "warren@a" in str(self.myAddress) else SECONDS)
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


def starting(member):
    """Whether the member has read its disk, and shows nothing yet."""
    process = member.process
    return hasattr(process, "recovery") and process.recovery.is_reading and V in process.state.vhosts


@pytest.mark.parametrize("while_reading", [True, False])
def test_virtual_hosts_come_and_go_while_a_node_starts(while_reading, monkeypatch):
    """A virtual host that is created through another node, while a node removes what its disk has of deleted ones,
    never started there. One that was deleted at that time, or before its turn to start came, ended the node.
    """
    with Group() as group:
        leader = group.wait_for_leader()
        late = next(member for member in group.members if member is not leader)
        for number in range(STARTED_AT_ONCE + 2):
            leader.ask(to_metadata.create_vhost(f"v{number}"))
        group.wait_until_level()
        late.kill()
        if while_reading:
            late.machine.blocking_delay = 1.0
        else:
            monkeypatch.setattr(stubs, "StubNode", SlowNode)
        late.boot()
        group.until(lambda: starting(late) if while_reading else V in late.routing.recovering)
        last = f"v{STARTED_AT_ONCE + 1}"
        # v0 is among those that are started at once, and the last one waits for its turn.
        changes = to_metadata.create_vhost("new"), to_metadata.delete_vhost("v0"), to_metadata.delete_vhost(last)
        asked = [leader.begin(change) for change in changes]
        group.until(lambda: "new" in late.process.state.vhosts and last not in late.process.state.vhosts)
        assert starting(late) if while_reading else V in late.routing.recovering
        late.machine.blocking_delay = 0.0
        group.until(lambda: late.has_started and all(each.is_here for each in asked))
        assert group.world.crashes == []
        wanted = {*leader.routing.vhosts()}
        assert "new" in wanted and last not in wanted and "v0" not in wanted
        group.until(lambda: late.process.changing.supervisors.keys() == wanted)
        assert {*late.routing.vhosts()} == wanted


@pytest.fixture
def slow(monkeypatch):
    """Nodes that start virtual hosts slowly."""
    monkeypatch.setattr(stubs, "StubNode", SlowNode)
    with Group() as group:
        yield group


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_virtual_host_is_deleted_through_another_node_while_it_is_created(slow, comes_back):
    """The node that had created it ended. If a third node created it again, the second one had it in its metadata and
    did not start it.
    """
    one, two, three = slow.members
    asked = [one.begin(to_metadata.create_vhost("x"))]
    slow.until(lambda: "x" in two.process.state.vhosts and "x" in three.process.state.vhosts)
    asked.append(two.begin(to_metadata.delete_vhost("x")))
    slow.until(lambda: all("x" not in member.process.state.vhosts for member in slow.members))
    if comes_back:
        asked.append(three.begin(to_metadata.create_vhost("x")))
    slow.until(lambda: all(each.is_here for each in asked), 120.0)
    wanted = {V, "x"} if comes_back else {V}
    for member in slow.members:
        slow.until(lambda member=member: member.process.changing.supervisors.keys() == wanted)
        assert {*member.routing.vhosts()} == wanted
    assert slow.world.crashes == []


def test_the_creator_of_a_virtual_host_shows_what_others_have_declared_there_meanwhile(slow):
    """A client of another node may use the virtual host as soon as that node has started it. The creator, which took
    longer, did not find such a queue until it was started again.
    """
    one, two, _ = slow.members
    created = one.begin(to_metadata.create_vhost("x"))
    slow.until(lambda: "x" in two.process.changing.supervisors)
    assert not created.is_here
    declared = two.begin(to_metadata.declare_queue("x", "q", True, None, False, table_from({}), "c"))
    slow.until(lambda: created.is_here and declared.is_here, 120.0)
    assert one.routing.queue("x", "q").node == two.name
