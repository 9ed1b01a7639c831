"""What is wrong inside a process is found as soon as it acts."""

from __future__ import annotations

import pytest

from warren.simulation.model.book import Broken
from warren.simulation.plan import parse_plan
from warren.simulation.schedule import Schedule

PLAN = """
node store=1 credit=8,4 queues=orders
alice/1 publish queue=orders count=12 persistent=1 size=400 then=40
bob/2 consume queue=orders prefetch=3 then=20
alice/1 publish queue=orders count=12 persistent=1 size=4200
"""


def spoil_credit_of_queue(queue):
    channel = next(iter(queue.credit._credit_to))
    queue.credit._credit_to[channel] -= 1


def spoil_credit_for_the_journal(queue):
    queue.credit._credit_from["journal"] += 1


def spoil_count(queue):
    queue.backing._pending.count += 1


def spoil_octets(queue):
    queue.backing._pending.body_bytes -= 1


@pytest.mark.parametrize("spoil", [spoil_credit_of_queue, spoil_credit_for_the_journal, spoil_count, spoil_octets])
def test_a_fault_is_found_when_who_has_it_acts(spoil):
    schedule = Schedule(parse_plan(PLAN), 3)
    schedule.begin()
    try:
        for action in schedule.plan.actions:
            schedule.perform(action)
        [queue] = schedule.node.processes("Queue")
        cell = queue.myAddress._cell
        spoil(queue)
        with pytest.raises(AssertionError) as caught:
            acts = 0
            while acts < 3:  # while the journal commits nobody can tell what is on its way to it
                assert schedule.world.step(), "nothing happens any more"
                acts += schedule.world.acting_cell is cell
            pytest.fail("nobody has noticed")
        assert type(caught.value) is Broken or "QS-" in str(caught.value)
    finally:
        schedule.close()
