"""Publishers repeat what was not confirmed, and a mirrored queue that deduplicates has each message once (SP-31)."""

import pytest

from warren.simulation.brokers import FAILURES, Failure
from warren.simulation.service import Sim

from ..mutants.deduplication_mutants import MIRRORED_DEDUPLICATION_MUTANTS

BODIES = [b"%d" % number + b"x" * (6_000 if number % 7 == 0 else 0) for number in range(40)]


def check(seed):
    """In each round two publishers lose their connections and one node fails, usually the master's, before all is
    confirmed. In the end each message is in the queue once.
    """
    sim = Sim(seed, nodes=3)
    try:
        sim.set_policy("ha", "^orders$", {"ha-mode": "all"})
        sim.deduplicate("orders", 1_000)
        for number in range(3):
            publishers = [sim.publish("orders", BODIES, f"{number}.{node}", node=node) for node in (0, 1)]
            # The publishers publish all at once.
            assert sim.run_until(lambda each=publishers[0]: each.has_published), sim.story()
            sim.run(sim.world.delay(0.02))
            for each in publishers:
                each.break_off()
            failing = master(sim) if sim.world.below(4) else sim.world.below(3)
            sim.suffer([Failure(FAILURES[sim.world.below(4)], failing, 0.0, sim.world.delay(2.0))])
            done = lambda: all(each.is_done for each in publishers)  # noqa: E731, B023
            assert sim.run_until(lambda: sim.brokers.are_up and in_sync(sim) and done()), sim.story()  # noqa: B023
        found = []
        sim.service("eater", "orders", lambda message: (found.append(message.body), message.ack())[0])
        assert sim.until_done(), sim.story()
        assert sorted(found) == sorted(6 * BODIES), sim.story()
    finally:
        sim.close()


def master(sim):
    """The index of the node that has the master."""
    (name,) = {queue.row.group.master.node for queue in sim.brokers.queues if hasattr(queue, "row")}
    return [node.settings.node_name for node in sim.brokers.nodes].index(name)


def in_sync(sim):
    """Whether each node has a replica that is a member of the queue's ring."""
    rings = [len(queue.row.group.ring) for queue in sim.brokers.queues if hasattr(queue, "row")]
    return rings == [3, 3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_each_message_is_in_the_queue_once(seed):
    check(seed)


@pytest.mark.parametrize("name", MIRRORED_DEDUPLICATION_MUTANTS)
def test_a_planted_bug_is_found(name):
    with MIRRORED_DEDUPLICATION_MUTANTS[name](), pytest.raises(AssertionError):
        for seed in range(40):
            check(seed)
