"""A wrong state inside a process is found as soon as the process acts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from warren.actors.queue.inspection import QueueView
from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.system.cell import Cell
from warren.simulation import schedule
from warren.simulation.cluster.plan import draw_cluster_plan
from warren.simulation.cluster.schedule import run as run_cluster
from warren.simulation.model.copies import PromiseBroken
from warren.simulation.plan import parse_plan
from warren.simulation.schedule import Schedule
from warren.store.queue.inspection import parts_in_memory

PLAN = """
node store=1 credit=8,4 queues=orders
alice/1 publish queue=orders count=12 persistent=1 size=400 then=40
bob/2 consume queue=orders prefetch=3 then=20
alice/1 publish queue=orders count=12 persistent=1 size=4200
"""


def spoil_credit_of_queue(queue):
    channel, _ = next(QueueView(queue).channels())
    queue.channels.credit.take(channel)


def spoil_credit_for_the_journal(queue):
    queue.channels.credit.bump("journal", 1)


def spoil_count(queue):
    list(parts_in_memory(queue.backing))[-1].count += 1


def spoil_bytes(queue):
    list(parts_in_memory(queue.backing))[-1].body_bytes -= 1


def spoil_persistent(queue):
    list(parts_in_memory(queue.backing))[-1].persistent_bytes += 1


@pytest.mark.parametrize(
    "spoil",
    [spoil_credit_of_queue, spoil_credit_for_the_journal, spoil_count, spoil_bytes, spoil_persistent],
)
def test_a_fault_is_found_when_its_process_acts(spoil):
    simulated = Schedule(parse_plan(PLAN), 3)
    simulated.begin()
    try:
        for action in simulated.plan.actions:
            simulated.perform(action)
        [queue] = simulated.node.processes("Queue")
        cell = queue.myAddress._cell
        spoil(queue)
        with pytest.raises(AssertionError) as caught:
            acts = 0
            # While the journal commits, the check cannot count what is in flight to it, so one step may not be enough
            # to find the fault.
            while acts < 3:
                assert simulated.world.step(), "nothing happens any more"
                acts += simulated.world.acting_cell is cell
            pytest.fail("the fault was not found")
        assert type(caught.value) is PromiseBroken or "QS-" in str(caught.value)
    finally:
        simulated.close()


def test_the_simulation_reads_no_private_attribute_of_a_process():
    """The simulation reads the state of processes only through their views, so that a change of a private attribute is
    made beside its view and not in the simulation.
    """
    root = Path(schedule.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("_")
        and node.attr != "_replace"  # a method of every named tuple
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert found == []


def test_processes_send_themselves_no_messages(monkeypatch):
    """Coroutines of one process wait for each other at a `Signal`, which costs no message. The exceptions, which are
    explained in docs/internals/architecture.md, are those of mirrored queues and of the node's operations.
    """
    declaring, promoted = ("ClusterMetadata", "await_replica"), ("Queue", "serve_kept")
    found = set()
    send = Cell.send

    def noted(self, target, message):
        if target == self.address and not str(message[0]).startswith("$"):
            found.add((type(self.actor).__name__, message[2][0] if message[0] == "ask" else message[0]))
        send(self, target, message)

    monkeypatch.setattr(Cell, "send", noted)
    monkeypatch.setattr(Cell, "actor_send", noted)
    for seed in range(10):
        schedule.run(seed)
    assert found == set()
    for seed in range(2):
        run_cluster(seed, draw_cluster_plan(SeedChooser(seed).below, is_mirrored=True))
    assert declaring in found, "the messages were not looked at"
    assert found <= {declaring, promoted}
