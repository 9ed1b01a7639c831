"""A node's lease has ended before a leader declares the node down (CL-51)."""

import random

import pytest

from warren.actors.context.lease import Lease
from warren.cluster.membership.majority.lease import CONTACT_SHARE, HEARD_SECONDS, LEASE_SHARE, Asker, Granter
from warren.tests.planting import replaced


def test_a_lease_counts_from_the_question():
    lease = Lease()
    assert lease.holds(1e9), "a node without a cluster needs no majority"
    asker = Asker(lease)
    assert not lease.holds(0.0)
    asker.granted(10.0, 1.5)
    assert lease.holds(11.49)
    assert not lease.holds(11.5)


def test_a_late_grant_of_an_earlier_question_takes_nothing_back():
    lease = Lease()
    asker = Asker(lease)
    asker.granted(10.0, 1.5)
    asker.granted(9.0, 1.5)
    assert lease.until == 11.5


def test_a_process_that_stood_still_finds_its_lease_expired():
    """A process that stood still reads the clock before it acts, and so finds that its lease has ended (CL-56)."""
    lease = Lease()
    Asker(lease).granted(10.0, 1.5)
    assert not lease.holds(70.0)


def test_a_new_leader_waits_as_if_it_had_granted_to_everybody_at_its_election():
    granter = Granter(100.0, 2.0)
    assert granter.ended(("a", "b"), 101.9) == []
    granter.grant("b", 101.0)
    assert granter.ended(("a", "b"), 102.0) == ["a"]
    assert granter.ended(("a", "b"), 103.0) == ["a", "b"]


def test_a_leader_without_a_majority_grants_nothing():
    granter = Granter(100.0, 2.0)
    assert granter.may_grant(100.5, contact=100.0)
    assert not granter.may_grant(100.0 + CONTACT_SHARE * HEARD_SECONDS, contact=100.0)


def overlaps(seed):
    """Play a node and two leaders, each with a clock of its own. Return whether the lease was valid when the node was
    declared down.

    The rates of the clocks differ by less than a quarter, and their readings by anything. The old leader loses its
    majority at some moment, and the new one is elected as soon as voters may elect it.
    """
    draw = random.Random(seed)
    ticktime = draw.choice((0.5, 2.0, 10.0))
    slow = draw.uniform(0.8, 1.0)
    rates = {name: draw.uniform(slow, slow * 1.25) for name in ("node", "old", "new")}
    offsets = {name: draw.uniform(-1e6, 1e6) for name in rates}

    def clock(name, time):
        return offsets[name] + rates[name] * time

    lease = Lease()
    asker, old = Asker(lease), Granter(clock("old", 0.0), ticktime)
    contact_lost = draw.uniform(0.0, 5.0)
    elected = contact_lost + HEARD_SECONDS / max(rates.values())
    new = None
    time = 0.0
    grants = []
    while time < elected + 3 * ticktime:
        time += draw.uniform(0.01, 0.2)
        node_now = clock("node", time)
        for arrival, asked_at, seconds in list(grants):
            if arrival <= time:
                grants.remove((arrival, asked_at, seconds))
                asker.granted(asked_at, seconds)
        if draw.random() < 0.5:
            arrives = time + draw.uniform(0.0, 1.0)
            # The old leader grants the lease as long as it counts on its majority.
            contact = clock("old", min(arrives, contact_lost))
            if old.may_grant(clock("old", arrives), contact) and draw.random() < 0.9:
                grants.append((arrives + draw.uniform(0.0, 3.0), node_now, old.grant("node", clock("old", arrives))))
        if new is None and time >= elected:
            new = Granter(clock("new", time), ticktime)
        if new is not None and new.has_ended("node", clock("new", time)) and lease.holds(node_now):
            return True
    return False


def test_no_lease_is_valid_after_its_node_was_declared_down():
    assert [seed for seed in range(1_500) if overlaps(seed)] == []


@pytest.mark.parametrize(
    ("decision", "wrong"),
    [
        (
            "lease: from when it counts",
            lambda granted, self, asked_at, seconds: setattr(
                self._lease, "until", max(self._lease.until, asked_at + 2 * seconds)
            ),
        ),
        ("lease: whether a leader may grant", lambda may_grant, self, now, contact: now - contact < 4.0),
        ("lease: when a node has lost it for certain", lambda has_lost, self, node, now: True),
    ],
)
def test_the_search_finds_a_planted_bug(decision, wrong):
    with replaced(wrong, decision):
        assert any(overlaps(seed) for seed in range(1_500))


def test_the_share_allows_clocks_that_differ_by_a_quarter():
    assert LEASE_SHARE * 1.25 < 1.0
    assert CONTACT_SHARE * 1.25 < 1.0


def test_a_lease_that_was_given_up_is_not_granted_again():
    """A grant that arrives after the node has given up its lease does not count: the leader declares the run down as
    soon as the node has announced its end.
    """
    lease = Lease()
    asker = Asker(lease)
    asker.granted(10.0, 1.5)
    asker.give_up()
    assert not lease.holds(10.1)
    asker.granted(10.2, 1.5)
    assert not lease.holds(10.3)
