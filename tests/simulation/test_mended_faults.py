"""Faults that the simulation has found, by the plans that showed them."""

from __future__ import annotations

from warren.simulation.plan import parse_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import plainest

CRASH_AT_START = """
node store=1 credit=400,200 queues=full
carol/1 publish queue=full count=1 persistent=1 size=4200 then=60
machine kill then=1
machine crash process=Queue then=60
machine kill then=3
"""


def test_a_queue_that_crashes_while_the_node_starts_keeps_its_messages():
    """Its process could not recover, so the queue is down until the next start; by then the bodies that it refers to are gone, though they had been confirmed."""
    story = run(0, parse_plan(CRASH_AT_START), plainest()).story
    assert "hears that message 1 is confirmed" in story
    assert "auditor/2 gets message 1 from full" in story
