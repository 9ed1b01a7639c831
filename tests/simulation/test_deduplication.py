"""Publishers of a simulated broker repeat what was not confirmed, and a deduplicating queue keeps each message once."""

import pytest

from warren.simulation.service import Sim

from .mutants.deduplication_mutants import DEDUPLICATION_MUTANTS

BODIES = [b"%d" % number + b"x" * (6_000 if number % 7 == 0 else 0) for number in range(40)]


def disturbed(seed):
    """A simulation in which two publishers publish all bodies, while the broker is killed or loses power, and
    publishers lose their connections.
    """
    sim = Sim(seed)
    sim.deduplicate("orders", 1_000)
    publishers = [sim.publish("orders", BODIES, name) for name in ("one", "two")]
    for _ in range(6):
        sim.run(sim.world.delay(0.008))  # so short that one seed in seven repeats what the broker has
        match sim.world.below(4):
            case 0:
                sim.kill()
            case 1:
                sim.lose_power()
            case _:
                publishers[sim.world.below(2)].break_off()
    assert sim.run_until(lambda: all(each.is_done for each in publishers) and sim.brokers.are_up), sim.story()
    return sim


def check(seed):
    """Assert that each message of both publishers is in the queue once."""
    sim = disturbed(seed)
    try:
        found = []
        sim.service("eater", "orders", lambda message: (found.append(message.body), message.ack())[0])
        assert sim.until_done(), sim.story()
        assert sorted(found) == sorted(2 * BODIES), sim.story()
    finally:
        sim.close()


@pytest.mark.parametrize("seed", range(40))
def test_each_message_is_in_the_queue_once(seed):
    check(seed)


@pytest.mark.parametrize("name", DEDUPLICATION_MUTANTS)
def test_a_planted_bug_is_found(name):
    with DEDUPLICATION_MUTANTS[name](), pytest.raises(AssertionError):
        for seed in range(40):
            check(seed)


def test_publishers_do_repeat():
    """Without deduplication some seeds have messages twice, so the publishers do repeat, and the test above
    can fail.
    """
    doubled = 0
    for seed in range(200):
        sim = Sim(seed)
        publisher = sim.publish("orders", BODIES)
        for _ in range(6):
            sim.run(sim.world.delay(0.05))
            publisher.break_off()
        assert sim.run_until(lambda publisher=publisher: publisher.is_done)
        doubled += any(queue.backing.totals().depth > len(BODIES) for queue in sim.brokers.queues)
        sim.close()
        if doubled:
            break
    assert doubled
