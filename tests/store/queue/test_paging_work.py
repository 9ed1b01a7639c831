"""One step of paging takes the same time however many runs a queue has. A client that acknowledges every second message
leaves a run for each message in between, pending or requeued.
"""

from __future__ import annotations

import sys

import pytest

from warren.store.queue.variable.sub_queues import RUN_COUNTS_AS
from warren.store.queue.variable.variable_queue import VariableQueue

from ..one_queue import Node, page_all

#: Messages in a small queue and in a large one.
SMALL, LARGE = 400, 4_000


def lines(function) -> int:
    """How many lines of Python the call runs; each round of a loop counts."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def scattered(node: Node, count: int) -> None:
    """The queue has `count` messages, each in a run of its own; half of them are pending."""
    node.publish(2 * count)
    node.queue.fetch(2 * count, True)
    node.queue.ack(range(0, 2 * count, 2))
    left = list(range(1, 2 * count, 2))
    for at in range(0, count // 2, 50):
        node.queue.requeue(left[at : at + 50])
    for number in left[count // 2 :]:  # cuts the pending run in pieces
        node.queue.requeue([number])
    node.queue.fetch(count // 2, True)


@pytest.fixture(params=[0, 4096], ids=["bodies in the store", "bodies in the index"])
def nodes(tmp_path, request) -> list[Node]:
    found = []
    for count in (SMALL, LARGE):
        (tmp_path / str(count)).mkdir()
        node = Node(tmp_path / str(count), embed_below=request.param, kind=VariableQueue)
        scattered(node, count)
        assert node.queue.totals().depth == count
        found.append(node)
    return found


def test_a_report_of_the_duration_costs_the_same(nodes):
    few, many = [lines(node.queue.ram_duration) for node in nodes]
    assert many < 1.2 * few


def test_a_round_moves_few_runs_and_the_rounds_move_all(nodes, monkeypatch):
    """One round of paging moves a bounded number of runs, because a run of one message costs as much as a long one; all
    rounds together move all (FC-37, QS-14).
    """
    monkeypatch.setattr("warren.store.queue.variable.paging.PAGING_QUOTA", SMALL // 2)
    few, many = [lines(lambda queue=node.queue: queue.set_ram_duration_target(0.0)) for node in nodes]
    assert many < 1.5 * few
    for node in nodes:
        queue, rounds = node.queue, 0
        sub = queue.sub_queues
        moved = sub.q3.count + sub.delta.count + queue._pending.absent
        assert 0 < moved <= SMALL // 2 / RUN_COUNTS_AS + 1
        while queue.is_paging_due:
            queue.page()
            rounds += 1
            assert rounds < 2_000, "paging does not end"
            queue.check()
        assert sub.q1.count + sub.q4.count == 0


def test_what_paging_counts_is_what_is_there(tmp_path):
    """What paging counts of the runs is what is there: `check` compares the counts with the runs after each step."""
    node = Node(tmp_path)
    scattered(node, 200)
    for step in (
        lambda: page_all(node.queue),
        lambda: node.queue.requeue(list(range(1, 120, 6))),
        lambda: node.queue.ack(list(range(3, 120, 6))),
        lambda: node.queue.fetch(60, True),
        lambda: node.queue.set_ram_duration_target(0.0),
        lambda: node.queue.purge(),
    ):
        step()
        node.queue.check()
