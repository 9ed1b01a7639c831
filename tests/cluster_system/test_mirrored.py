"""Mirrored queues of three nodes as processes, whatever happens to one of them or to the network between them."""

from __future__ import annotations

import pytest

from warren.simulation.cluster.ledger import Ledger, Promises
from warren.tests.cluster_system.nodes import warren_cluster
from warren.tests.cluster_system.rounds.faults import isolate_one, kill_and_start_at_once, kill_one, stop_one
from warren.tests.cluster_system.rounds.rounds import Rounds

SEED = 1


@pytest.mark.timeout(300)
def test_mirrored_queues_keep_their_promises(tmp_path, command):
    """As with queues that have one replica, but for what a consumer gets again after a failover.

    On a failure `tmp_path` keeps the account, and the log and the data of each node.
    """
    with (tmp_path / "account").open("w") as account, warren_cluster(tmp_path, 3) as nodes:
        ledger = Ledger(account, Promises(fails_over=True))
        nodes.start()
        ran = command(next(iter(nodes)), "set_policy", "mirrors", "^ledger", '{"ha-mode": "all"}')
        assert ran.code == 0, ran.err
        rounds = Rounds(nodes, ledger, SEED, seconds=0.3)
        rounds.declare()
        check = "check_if_node_is_mirror_sync_critical"
        assert [command(node, check).code for node in nodes] == [0, 0, 0]
        rounds.run([kill_one, isolate_one, stop_one, kill_and_start_at_once])
        alone = '{"ha-mode": "exactly", "ha-params": 1}'
        assert command(next(iter(nodes)), "set_policy", "--priority", "9", "alone", "^ledger", alone).code == 0
        assert 69 in [command(node, check).code for node in nodes], "the only replica of a queue is on one of them"
    for done in ("confirmed", "delivered", "acked", "drained"):
        assert ledger.counts[done] > 20, f"the clients did too little: {ledger.counts}"
