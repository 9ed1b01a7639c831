"""What the members of an idle cluster send each other."""

from warren.cluster.consensus.messages import Heartbeat
from warren.cluster.metadata import wire

from .group import Group


def test_members_without_commands_propose_nothing(monkeypatch):
    """A follower sent its leader an empty proposal at each of its ticks."""
    said = []
    packed = wire.packed
    with Group() as group:
        group.world.run(5.0)
        monkeypatch.setattr(wire, "packed", lambda what: packed([said.append(each) or each for each in what]))
        group.world.run(2.0)
    kinds = {type(each) for each in said}
    assert Heartbeat in kinds and wire.Propose not in kinds
