"""Publishers repeat what was not confirmed, and a mirrored queue that deduplicates keeps each message once (SP-31)."""

import pytest

from warren.simulation.brokers import FAILURES, Failure
from warren.simulation.service import Sim

from ..mutants.deduplication_mutants import MIRRORED_DEDUPLICATION_MUTANTS

BODIES = [b"%d" % number + b"x" * (6_000 if number % 7 == 0 else 0) for number in range(40)]


def check(seed, by_policy=False):
    """In each round two publishers lose their connections and one node fails, usually the master's, before all is
    confirmed. In the end each message is in the queue once.
    """
    sim = Sim(seed, nodes=3)
    try:
        if by_policy:
            sim.set_policy("ha", "^orders$", {"ha-mode": "all", "deduplicate": 1_000})
        else:
            sim.set_policy("ha", "^orders$", {"ha-mode": "all"})
            sim.deduplicate("orders", 1_000)
        for number in range(3):
            publishers = [sim.publish("orders", BODIES, f"{number}.{node}", node=node) for node in (0, 1)]
            # Both publishers send all their messages at once.
            assert sim.run_until(lambda each=publishers[0]: each.has_published), sim.story()
            sim.run(sim.world.delay(0.02))
            for each in publishers:
                each.break_off()
            failing = master(sim) if sim.world.below(4) else sim.world.below(3)
            sim.suffer([Failure(FAILURES[sim.world.below(4)], failing, 0.0, sim.world.delay(2.0))])
            done = lambda: all(each.is_done for each in publishers)  # noqa: E731, B023
            assert sim.run_until(done), sim.story()
            calm(sim)
        found = []
        sim.service("eater", "orders", lambda message: (found.append(message.body), message.ack())[0])
        assert sim.until_done(), sim.story()
        assert sorted(found) == sorted(6 * BODIES), sim.story()
    finally:
        sim.close()


def check_changes(seed):
    """A policy widens, narrows, ends and begins the window while two publishers publish in rounds. When the policy does
    not change in a round, its second publisher loses its connection, and usually the master fails then.
    """
    sim = Sim(seed, nodes=3)
    try:
        sim.set_policy("ha", "^orders$", {"ha-mode": "all"})
        expected = []
        for number, window in enumerate((400, 1_000, None, 500)):
            first = sim.publish("orders", BODIES, f"{number}.first", node=number % 3)
            assert sim.run_until(lambda each=first: each.has_published), sim.story()
            definition = {} if window is None else {"deduplicate": window}
            sim.set_policy("ha", "^orders$", {"ha-mode": "all", **definition})
            assert sim.run_until(lambda size=window, each=first: each.is_done and windows(sim) == {size}), sim.story()
            expected += BODIES
            if window is None:
                continue
            second = sim.publish("orders", BODIES, f"{number}.second", node=1)
            assert sim.run_until(lambda each=second: each.has_published), sim.story()
            sim.run(sim.world.delay(0.02))
            second.break_off()
            failing = master(sim) if sim.world.below(4) else sim.world.below(3)
            sim.suffer([Failure(FAILURES[sim.world.below(4)], failing, 0.0, sim.world.delay(2.0))])
            assert sim.run_until(lambda each=second: each.is_done), sim.story()
            calm(sim)
            assert windows(sim) == {window}, sim.story()
            expected += BODIES
        found = []
        sim.service("eater", "orders", lambda message: (found.append(message.body), message.ack())[0])
        assert sim.until_done(), sim.story()
        assert sorted(found) == sorted(expected), sim.story()
    finally:
        sim.close()


def calm(sim):
    """Wait until all replicas are in sync, and stay so. A node that was cut off may be declared down although it is
    heard again, and with a new master a message may come again whose ack was under way.
    """
    sim.run(5.0)
    assert sim.run_until(lambda: sim.brokers.are_up and in_sync(sim)), sim.story()


def windows(sim):
    """The windows of the replicas; None for one that does not deduplicate."""
    found = [queue.state.deduplication for queue in sim.brokers.queues if hasattr(queue, "state")]
    return {None if each is None else each.window.size for each in found}


def master(sim):
    """The index of the node that has the master."""
    (name,) = {queue.row.group.master.node for queue in sim.brokers.queues if hasattr(queue, "row")}
    return [node.settings.node_name for node in sim.brokers.nodes].index(name)


def in_sync(sim):
    """Whether each node has a replica that is a member of the queue's ring."""
    rings = [len(queue.row.group.ring) for queue in sim.brokers.queues if hasattr(queue, "row")]
    return rings == [3, 3, 3]


@pytest.mark.parametrize("by_policy", [False, True], ids=["argument", "policy"])
@pytest.mark.parametrize("seed", range(3))
def test_each_message_is_in_the_queue_once(seed, by_policy):
    check(seed, by_policy)


@pytest.mark.parametrize("seed", range(4))
def test_a_policy_changes_the_window_while_the_ring_is_up(seed):
    check_changes(seed)


@pytest.mark.parametrize("name", MIRRORED_DEDUPLICATION_MUTANTS)
def test_a_planted_bug_is_found(name):
    with MIRRORED_DEDUPLICATION_MUTANTS[name](), pytest.raises(AssertionError):
        for seed in range(40):
            check(seed)
