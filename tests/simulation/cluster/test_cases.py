"""Named cases of what may happen to a cluster (CL-116, CL-118). `make bench BENCH=cases` runs each with 100 seeds.

The specification names more cases than testdata/clusters has. This file says which test or scenario has each of the
others.
"""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest

from warren.simulation.cluster.plan import parse_cluster_plan
from warren.simulation.cluster.schedule import run
from warren.simulation.service import Sim
from warren.tests.simulation.cluster.cases import cases, plan_of

#: The seeds with which each case runs, and those that are tried besides, one after the other, until what the case is
#: named after has happened. A node that is paused for 3 s is declared down in every second or third schedule.
SEEDS, MORE_SEEDS = range(1, 3), range(3, 11)
TESTS = Path(__file__).parent.parent.parent

#: Where the cases are that need more than clients, machines, a network and policies; paths begin at the folder of all
#: tests.
ELSEWHERE = {
    # disks
    "crash_in_join": "cluster/membership/test_leaving.py::"
    "test_a_node_that_has_joined_and_is_reset_before_it_knows_the_members_leaves",
    "crash_in_snapshot": "cluster/metadata/test_group.py::"
    "test_a_node_that_missed_more_than_the_log_keeps_gets_the_state",
    # boot
    "three_start_at_once": "cluster/membership/test_founding.py::test_in_every_order_of_starts_all_end_in_one_cluster",
    "start_any_order": "cluster/membership/test_founding.py::test_in_every_order_of_starts_all_end_in_one_cluster",
    "lowest_name_absent": "cluster/membership/test_founding.py::test_others_wait_for_the_lowest_name",
    "lists_differ": "cluster/membership/test_founding.py::test_lists_that_differ_stop_both",
    "wiped_founder_returns": "cluster/membership/test_founding.py::"
    "test_a_founder_whose_directory_was_lost_cannot_found_again",
    "wiped_member_refused": "cluster_system/test_members.py::"
    "test_a_member_with_an_empty_data_directory_is_refused_with_the_way_out",
    "forgotten_returns": "cluster_system/test_operators.py::"
    "test_a_forgotten_node_is_gone_with_its_queues_and_may_not_come_back",
    "force_boot_then_old_returns": "cluster_system/test_members.py::"
    "test_the_last_node_goes_on_alone_if_an_operator_says_so",
    "mixed_versions": "cluster_system/test_operators.py::"
    "test_a_feature_is_enabled_once_all_nodes_have_it_and_then_demanded_of_all",
    # clients
    "declare_same_name_two_nodes": "cluster/metadata/test_group.py::"
    "test_of_two_nodes_that_declare_one_name_at_once_the_second_in_the_log_finds_the_queue",
    "exclusive_owner_node_dies": "cluster/remote_queues/test_lost_homes.py::"
    "test_an_exclusive_queue_ends_with_the_node_of_its_connection",
    "reply_to_across": "cluster/remote_queues/test_remote_queues.py::test_direct_replies_cross",
    "consumer_priority_across": "cluster/remote_queues/test_remote_queues.py::"
    "test_consumer_priorities_count_on_all_nodes",
    "mandatory_to_down_queue": "cluster/remote_queues/test_lost_homes.py::test_a_durable_queue_of_a_node_that_is_down",
    "reclaim_retained": "mirror/test_failover_of_publishers.py::"
    "test_what_the_lost_master_had_not_passed_on_is_published_again",
    "reclaim_not_retained": "mirror/test_failover_of_publishers.py::test_what_is_too_much_to_be_retained_is_refused",
    # membership
    "add_node_loaded": "cluster_system/test_joining.py::test_nodes_with_clusters_of_their_own_become_one_by_command",
    "two_nodes_and_witness": "cluster_system/test_witness.py::test_a_node_or_the_witness_may_fail",
    "witness_is_leader_alone_has_entry": "testdata/consensus/witness_leads_only_until_another_can.txt",
}


class Lines(logging.Handler):
    """The texts of what is logged. It keeps no record, because an error in a record would keep the processes of a
    killed node in memory, and with them open LMDB environments, which the node's next run must open.
    """

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_case_keeps_every_promise(case, monkeypatch):
    """Every promise is kept, and the log shows what the case is named after, with one of the first seeds at least."""
    handler, logger = Lines(), logging.getLogger("warren")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    logger.setLevel(logging.INFO)
    has_happened = False
    for seed in (*SEEDS, *MORE_SEEDS):
        if seed in SEEDS or not has_happened:
            outcome = run(seed, plan_of(case, seed))
            assert outcome.failure is None, f"seed {seed}: {outcome.failure}\n{outcome.story}"
            has_happened = has_happened or any(re.search(case.logged, line) for line in handler.texts)
    assert has_happened, f"nothing is logged like '{case.logged}'"


def test_the_plan_of_a_case_is_written_and_read_as_any_other():
    found = cases()
    assert len({case.name for case in found}) == len(found)
    for case in found:
        plan = plan_of(case, 7)
        assert str(parse_cluster_plan(str(plan))) == str(plan)


def test_the_other_cases_are_where_this_file_says():
    assert not ELSEWHERE.keys() & {case.name for case in cases()}
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        text = (TESTS / path).read_text()
        assert not name or name in {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}, (
            place
        )


@pytest.mark.parametrize("seed", range(4))
def test_sac_failover(seed):
    """When the master of a queue with a single active consumer is lost, another consumer goes on, in the same order."""
    bodies = [b"%d" % number for number in range(40)]
    with Sim(seed, nodes=3) as sim:
        handled = []

        def handle(message):
            if not message.redelivered:
                handled.append(int(message.body))
            yield "handles the message"
            message.ack()

        sim.set_policy("ha", "^orders$", {"ha-mode": "all"})
        sim.declare_queue("orders", {"x-single-active-consumer": True})
        sim.publish("orders", bodies, node=1)
        for node in (1, 2):
            sim.service(f"worker {node}", "orders", handle, crash_one_in=0, node=node)
        sim.run(sim.world.delay(0.15))
        sim.kill(0)
        sim.run(2.0)
        sim.start(0)
        assert sim.until_done(), sim.story()
        assert handled == sorted(handled), sim.story()


@pytest.mark.parametrize("seed", range(4))
def test_ttl_and_limits_in_failover(seed):
    """When the master of a queue with a limit and a message TTL is lost, each message is in the queue or has become a
    dead letter for one of these reasons, and the queue has no more messages than the limit allows.
    """
    bodies = {b"%d" % number for number in range(30)}
    with Sim(seed, nodes=3) as sim:
        found, dead = [], []
        sim.set_policy("ha", "^(orders|dead)$", {"ha-mode": "all"})
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        sim.declare_queue("orders", {**arguments, "x-max-length": 10, "x-message-ttl": 60_000})
        sim.service("undertaker", "dead", lambda message: (dead.append(message.body), message.ack())[0], node=1)
        sim.run(0.1)
        publisher = sim.publish("orders", sorted(bodies), node=1)
        sim.run(sim.world.delay(0.02))
        sim.kill(0)
        assert sim.run_until(lambda: publisher.is_done), sim.story()
        sim.start(0)
        sim.run(1.0)
        waiting = len(bodies) - len(set(dead))
        assert waiting <= 10, sim.story()
        if seed % 2:
            sim.run(61.0)
        else:
            sim.service("eater", "orders", lambda message: (found.append(message.body), message.ack())[0], node=2)
        assert sim.until_done(), sim.story()
        assert set(found) | set(dead) == bodies, sim.story()
