"""The rounds find nothing wrong with one healthy node, and find each planted fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from warren.simulation.cluster.ledger import Ledger, Violation
from warren.tests.cluster_system.nodes import single_warren
from warren.tests.cluster_system.rounds import clients
from warren.tests.cluster_system.rounds.faults import kill_one, nothing, pause_briefly, stop_one
from warren.tests.cluster_system.rounds.rounds import Fault, Rounds

SEED = 1


def run(tmp_path, faults: list[Fault], fault: str = "", work: Sequence[str] = ()) -> None:
    """Run a round for each of `faults` on a node that the code `fault` has made faulty. Then run rounds without a fault
    until each kind of `work` was done more than 20 times.
    """
    with (tmp_path / "account").open("w") as account, single_warren(tmp_path, fault) as nodes:
        ledger = Ledger(account)
        nodes.start()
        rounds = Rounds(nodes, ledger, SEED)
        rounds.declare()
        rounds.run(faults)
        while any(ledger.counts[done] <= 20 for done in work):
            rounds.run([nothing])


def test_a_node_that_is_paused_killed_and_stopped_keeps_its_promises(tmp_path):
    """A node that is paused, killed and stopped breaks no promise, and the clients did enough work to
    notice if it did.
    """
    work = ("confirmed", "delivered", "acked", "declared", "deleted", "looked up")
    run(tmp_path, [nothing, pause_briefly, kill_one, stop_one], work=work)


#: Python code that makes a node faulty, and the violation that the ledger must then find.
FAULTS = {
    "every 50th confirm is lost": (
        r"has not answered \d+ publishes .*P7",
        """
from itertools import count
from warren.actors.channel.publishing.confirms import Confirms
confirmed, numbers = Confirms._confirmed, count(1)
Confirms._confirmed = lambda self, *span: confirmed(self, *span) if next(numbers) % 50 else None
""",
    ),
    "some messages are lost when they go back to their queue": (
        r"confirmed messages are lost \(P3\)",
        """
from itertools import count
from warren.store.queue.variable.variable_queue import VariableQueue
requeue, numbers = VariableQueue.requeue, count(1)
VariableQueue.requeue = lambda self, tags: requeue(self, tags) if next(numbers) % 4 else self.ack(tags)
""",
    ),
    "every 20th message is twice in its queue": (
        r"doubled|without the redelivered flag|behind number",
        """
from itertools import count
from warren.store.queue.variable.variable_queue import VariableQueue
publish, numbers = VariableQueue.publish, count(1)
def twice(self, origins, contents, body_bytes, expiry, confirm, *rest):
    taken = publish(self, origins, contents, body_bytes, expiry, confirm, *rest)
    if not next(numbers) % 20:
        publish(self, origins, contents, body_bytes, expiry, False)
    return taken
VariableQueue.publish = twice
""",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path, monkeypatch, fault):
    """A node that breaks a promise by itself is found out, without a fault from outside."""
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 3.0)
    found, code = FAULTS[fault]
    with pytest.raises(Violation, match=found):
        run(tmp_path, [nothing] * 20, code)  # ends with the first violation
