"""A change is not answered while a node that has not applied it may hold a lease, and so serve clients (CL-31)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from warren.cluster.consensus.leader import HEARTBEAT_TICKS
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.membership.majority.failure_detector import HEARTBEAT_SECONDS
from warren.cluster.membership.majority.lease import LEASE_SHARE
from warren.cluster.metadata.in_force import TICK, AnswerTimeouts, InForce


class Leading:
    """The leader a, and the member b, which answered its last heartbeat at the tick `heard`."""

    def __init__(self, timeouts):
        self.now = self.heard = 0
        self.raft = SimpleNamespace(
            node="a", log=SimpleNamespace(committed=10, members=RaftMembers(("a", "b"))), leading=self
        )
        members = SimpleNamespace(running=lambda: ["a", "b"])
        self.in_force = InForce(self.raft, members, lambda index: None, timeouts)
        self.in_force.member_applied("b", 10, own=10)
        self.pass_time(200)
        assert self.in_force.index == 10

    def is_heard(self, node, ticks):
        return self.now - self.heard <= ticks

    def pass_time(self, ticks, is_heard=True):
        """Let time pass as an idle leader does, which takes its ticks a few at a time."""
        for _ in range(0, ticks, HEARTBEAT_TICKS):
            self.now += HEARTBEAT_TICKS
            if is_heard:
                self.heard = self.now
            self.in_force.ticked(HEARTBEAT_TICKS)
            self.in_force.find(self.raft.log.committed)

    def seconds_until_in_force(self, is_heard):
        """How long a change that b does not apply waits for b."""
        self.raft.log.committed = 11
        began = self.now
        while self.in_force.index < 11:
            assert self.now - began < 20_000, "the change waits for ever"
            self.pass_time(HEARTBEAT_TICKS, is_heard)
        return (self.now - began) * TICK


@pytest.mark.parametrize("net_ticktime", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("apply_lag", [0.1, 1.0, 30.0])
def test_a_member_that_lags_counts_until_its_lease_has_ended(net_ticktime, apply_lag):
    """The leader prolongs the lease of a member that lags until the first beat after `cluster_apply_lag`."""
    leading = Leading(AnswerTimeouts.of(net_ticktime, apply_lag))
    lease_ends = apply_lag + HEARTBEAT_SECONDS + LEASE_SHARE * net_ticktime
    waited = leading.seconds_until_in_force(is_heard=True)
    assert lease_ends <= waited - HEARTBEAT_TICKS * TICK
    assert waited <= lease_ends + max(2.0, net_ticktime), "nor does it delay answers for much longer"


@pytest.mark.parametrize("net_ticktime", [0.5, 2.0, 20.0])
def test_a_member_that_is_silent_counts_until_its_lease_has_ended(net_ticktime):
    """Its last question for a lease came a beat after the last heartbeat that it has answered, at most."""
    leading = Leading(AnswerTimeouts.of(net_ticktime, 60.0))
    lease_ends = HEARTBEAT_SECONDS + LEASE_SHARE * net_ticktime
    waited = leading.seconds_until_in_force(is_heard=False)
    assert lease_ends <= waited
    assert waited <= lease_ends + max(2.0, net_ticktime)
