"""Programs that users write, with a simulated broker."""

from __future__ import annotations

import pytest

from warren.simulation.brokers import Failure
from warren.simulation.search import ScheduleFailed, attempt, check
from warren.simulation.service import Sim

BODIES = [b"%d" % number for number in range(12)]


def careful(sim):
    rows = []

    def handle(message):
        yield
        rows.append((message.body, message.redelivered))
        yield
        message.ack()

    sim.publish("q", BODIES)
    sim.service("taker", "q", handle, prefetch=3)
    return rows


def test_a_service_that_acknowledges_last_gets_everything():
    def scenario(sim):
        rows = careful(sim)
        assert sim.until_done()
        assert {body for body, _ in rows} == set(BODIES)

    check(scenario, 20)


@pytest.mark.parametrize("end", [Sim.kill, Sim.lose_power])
def test_a_broker_that_is_killed_or_loses_power_loses_nothing(end):
    def scenario(sim):
        rows = careful(sim)
        for _ in range(3):
            sim.run(0.005 * sim.world.below(8))
            end(sim)
        assert sim.until_done()
        assert {body for body, _ in rows} == set(BODIES)

    check(scenario, 20)


def test_a_plain_handler_may_requeue_and_reject():
    def scenario(sim):
        seen = []

        def handle(message):
            seen.append(message.body)
            if message.redelivered:
                message.reject()
            else:
                message.requeue()

        sim.publish("q", BODIES)
        sim.service("taker", "q", handle)
        assert sim.until_done()
        assert len(seen) >= 2 * len(BODIES)

    check(scenario, 10)


def hasty(sim):
    rows = []

    def handle(message):
        message.ack()
        yield
        rows.append(message.body)

    sim.publish("q", BODIES[:2])
    sim.service("taker", "q", handle)
    assert sim.until_done()
    assert set(rows) >= set(BODIES[:2]), "something is missing"


def test_a_failure_has_a_story_and_the_same_seed_has_the_same_story():
    with pytest.raises(ScheduleFailed) as caught:
        check(hasty, 200)
    text = str(caught.value)
    seed = int(text.split()[1])
    found = attempt(hasty, seed)
    assert found is not None and found.story in text
    assert "something is missing" in text and "taker      crashes" in text


def test_a_cluster_loses_nothing_whatever_fails():
    """Users' programs with three nodes lose no message while one node after the other fails (CL-107)."""

    def scenario(sim):
        rows = []

        def handle(message):
            yield
            rows.append(message.body)
            yield
            message.ack()

        sim.publish("q", BODIES, node=1)
        sim.service("taker", "q", handle, prefetch=3, node=2)
        for _ in range(2):
            sim.run(0.005 * sim.world.below(8))
            sim.disturb()
        assert sim.until_done()
        assert set(rows) == set(BODIES)

    check(scenario, 6, nodes=3)


def test_nodes_that_a_test_ends_cuts_off_and_pauses():
    """`kill`, `partition`, `pause` and the like do what they say, and the story tells it (CL-107)."""
    sim = Sim(nodes=3)
    try:
        sim.partition(0, 2)
        sim.partition(1, 2, oneway=True)
        sim.pause(1)
        sim.kill(0)
        assert not sim.brokers.are_up
        sim.resume(1)
        sim.start(0)
        sim.lose_power(2)
        sim.heal()
        publisher = sim.publish("q", BODIES, node=2)
        assert sim.run_until(lambda: sim.brokers.are_up and publisher.is_done)
        told = [f"{who} {text}" for _, who, text in sim.told if who.startswith("warren@")]
        assert told[:8] == [
            "warren@a and warren@c are cut off",
            "warren@b is not heard by warren@c",
            "warren@b stands still",
            "warren@a is killed",
            "warren@b goes on",
            "warren@a starts",
            "warren@c loses power",
            "warren@c starts",
        ]
        with pytest.raises(ValueError, match="there is no node 3; the simulated broker has 3"):
            sim.kill(3)
        with pytest.raises(ValueError, match="the broker has 3 nodes: give the index of one of them"):
            sim.kill()
    finally:
        sim.close()


@pytest.mark.parametrize("wrong, complaint", [({"nodes": 9}, "1 to 5"), ({"nodes": 3, "with_store": False}, "disks")])
def test_a_cluster_that_cannot_be_simulated_is_refused(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        Sim(**wrong)


def test_a_network_of_one_node_cannot_be_cut():
    sim = Sim()
    try:
        with pytest.raises(ValueError, match="between two nodes"):
            sim.partition(0, 0)
    finally:
        sim.close()


def of_three_nodes(scenario, schedules=6):
    check(scenario, schedules, nodes=3)


def test_a_producer_learns_what_became_of_each_publish():
    """A producer gets the outcome of each publish: a queue with one replica where two are needed refuses, and accepts
    publishes again when there is a second one.
    """
    answers = []

    def work():
        for body in BODIES[:4]:
            while (answer := (yield body)) != "confirmed":
                answers.append(answer)
            answers.append(answer)

    def scenario(sim):
        answers.clear()
        taken = set()
        sim.set_policy("ha", "^q$", {"ha-mode": "exactly", "ha-params": 2, "ha-min-in-sync": 2})
        sim.producer("maker", "q", work)
        sim.service("taker", "q", lambda message: (taken.add(message.body), message.ack())[1])
        sim.kill(1)
        sim.run(sim.world.delay(2.0))
        sim.heal()
        assert sim.until_done()
        assert answers.count("confirmed") == 4 and set(answers) <= {"confirmed", "refused", "lost"}
        assert taken >= set(BODIES[:4])

    of_three_nodes(scenario)
    with Sim(nodes=3) as sim:
        scenario(sim)


def test_a_producer_whose_connection_breaks_is_told_so():
    answers = []

    def work():
        answers.append((yield b"one"))

    with Sim(seed=1) as sim:
        sim.producer("maker", "q", work)
        assert sim.run_until(lambda: any("publishes" in text for _, _, text in sim.told))
        sim.kill()
        assert sim.until_done()
    assert answers == ["lost"]


def test_a_policy_is_in_force_on_every_node_and_a_bad_one_is_refused():
    with Sim(nodes=3) as sim:
        sim.set_policy("ttl", "^q$", {"message-ttl": 1000})
        for node in sim.brokers.nodes:
            assert node.supervisor.context.definitions.policies_of("/") is not None
        with pytest.raises(Exception, match="is not a valid message TTL"):
            sim.set_policy("bad", "^q$", {"message-ttl": "soon"})


def test_queues_are_declared_with_arguments():
    def scenario(sim):
        rows = careful(sim)
        sim.disturb()
        assert sim.until_done()
        assert {body for body, _ in rows} == set(BODIES)
        assert {row["type"] for row in sim.brokers.nodes[0].listing("queues")} == {"quorum"}

    def declared(sim):
        sim.declare_queue("q", {"x-queue-type": "quorum"})
        scenario(sim)

    of_three_nodes(declared, 6)


def test_failures_begin_and_end_at_their_times():
    failures = [Failure("kill", 0, 1.0, 2.0), Failure("pause", 1, 2.0, 0.5), Failure("cut_off", 2, 3.0, 1.0)]
    with Sim(nodes=3) as sim:
        begin = sim.world.time
        sim.suffer(failures)
        told = [(round(time - begin, 3), who, text) for time, who, text in sim.told if "run" not in text]
    assert told == [
        (1.0, "warren@a", "is killed"),
        (2.0, "warren@b", "stands still"),
        (2.5, "warren@b", "goes on"),
        (3.0, "warren@a", "starts"),
        (3.0, "warren@c", "and warren@a are cut off"),
        (3.0, "warren@c", "and warren@b are cut off"),
        (4.0, "warren@c", "is heard by the others again"),
    ]


@pytest.mark.parametrize("policy", [{}, {"ha-mode": "all"}], ids=["one home", "mirrored"])
def test_programs_of_three_nodes_that_declare_one_queue_at_once_wait_for_its_start(policy):
    """Programs of three nodes that declare one queue at the same time wait for its start. A node that knew the queue
    before its home had started it once asked for its process, got noproc, and waited 15 s for another one.
    """

    def scenario(sim):
        if policy:
            sim.set_policy("ha", "^q$", policy)
        sim.publish("q", BODIES, node=0)
        for node in (1, 2):
            sim.service(f"taker{node}", "q", lambda message: message.ack(), node=node, crash_one_in=0)
        assert sim.until_done()
        assert not [text for _, _, text in sim.told if "refused" in text], sim.story()

    of_three_nodes(scenario, 30)
