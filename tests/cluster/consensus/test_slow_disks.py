"""An election succeeds on disks whose writes take long."""

from __future__ import annotations

from random import Random

import pytest

from warren.cluster.consensus.membership import RaftMembers

from .world import World

#: How many ticks a write takes. An election waits for two writes in a row: the candidate's, and then the voter's.
WRITE_TICKS = 8


def pass_time(world: World, ticks: int) -> None:
    """Let time pass, in which messages arrive at once and each write takes `WRITE_TICKS`."""
    began: dict[str, tuple[object, int]] = {}
    for _ in range(ticks):
        world.tick_all()
        moves = True
        while moves:
            moves = bool(world.in_flight)
            while world.in_flight:
                world.deliver(world.in_flight.pop(0))
            for node in world.nodes.values():
                known = began.get(node.name)
                if node.writing is not None and (known is None or known[0] is not node.writing):
                    began[node.name] = node.writing, world.now
                elif node.writing is not None and known is not None and world.now >= known[1] + WRITE_TICKS:
                    world.finish_write(node.name)
                    moves = True


@pytest.mark.parametrize("seed", range(10))
def test_survivors_elect_a_leader_though_each_write_takes_long(seed: int) -> None:
    random = Random(seed)
    world = World(RaftMembers(("a", "b", "c")), lambda name, low, high: random.randint(low, high))
    pass_time(world, 400)
    leader = world.leader()
    assert leader is not None
    world.crash(leader.name)
    for node in world.nodes.values():
        if node.raft is not None:
            world.give_up(node.name, leader.name)
    pass_time(world, 1000)
    assert world.leader() is not None
