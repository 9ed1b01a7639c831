"""Three nodes as processes are one broker, whatever happens to one of them or to the network between them."""

from __future__ import annotations

import pytest

from warren.tests.cluster_system.faults import (
    cut_briefly,
    isolate_one,
    kill_and_start_at_once,
    kill_one,
    nothing,
    pause_long,
    reset_connections,
    stop_one,
)
from warren.tests.cluster_system.ledger import Ledger
from warren.tests.cluster_system.nodes import warren_cluster
from warren.tests.cluster_system.rounds import Fault, Rounds

SEED = 1


def run(tmp_path, faults: list[Fault]) -> Ledger:
    with (tmp_path / "account").open("w") as account, warren_cluster(tmp_path, 3) as nodes:
        ledger = Ledger(account)
        nodes.start()
        rounds = Rounds(nodes, ledger, SEED, seconds=0.3)
        rounds.declare()
        rounds.run(faults)
        return ledger


@pytest.mark.parametrize(
    "faults",
    [[nothing, kill_one, stop_one, kill_and_start_at_once], [cut_briefly, reset_connections, isolate_one, pause_long]],
    ids=["processes", "network"],
)
def test_a_cluster_keeps_its_promises(tmp_path, faults):
    """Clients of every node use queues of every node meanwhile. After each fault everything is as it was."""
    counts = run(tmp_path, faults).counts
    for done in ("confirmed", "delivered", "acked", "drained", "declared", "deleted", "looked up"):
        assert counts[done] > 20, f"the clients did too little: {counts}"
