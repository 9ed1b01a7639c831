"""Three nodes, each a process, work as one broker, whatever happens to one of them or to the network between them.

`python -m warren.bench.rounds` does the same with every kind of fault and for any length of time.
"""

from __future__ import annotations

from warren.simulation.cluster.ledger import Ledger
from warren.tests.cluster_system.nodes import warren_cluster
from warren.tests.cluster_system.rounds.faults import isolate_one, kill_one, nothing, reset_connections
from warren.tests.cluster_system.rounds.rounds import Rounds

SEED = 1


def test_a_cluster_keeps_its_promises(tmp_path):
    """Clients of every node use queues of every node while faults happen, and all promises are kept.

    On a failure `tmp_path` keeps the account, and the log and the data of each node.
    """
    with (tmp_path / "account").open("w") as account, warren_cluster(tmp_path, 3) as nodes:
        ledger = Ledger(account)
        nodes.start()
        rounds = Rounds(nodes, ledger, SEED, seconds=0.3, pause=0.1)
        rounds.declare()
        rounds.run([nothing, kill_one, reset_connections, isolate_one])
        # Go on until the clients have done enough work to notice a broken promise, which takes longer on a busy
        # machine.
        work = ("confirmed", "delivered", "acked", "drained", "declared", "deleted", "looked up")
        while min(ledger.counts[done] for done in work) <= 20:
            rounds.run([nothing])
