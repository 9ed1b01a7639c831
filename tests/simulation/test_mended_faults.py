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


GET_BESIDE_A_CONSUMER = """
node store=0 credit=400,200 queues=full
carol/2 consume queue=full prefetch=2 then=1
carol/2 publish queue=full count=5 persistent=1 size=20
carol/2 get queue=full then=1
"""


def test_what_is_got_does_not_overtake_what_was_delivered_before():
    """The queue had given messages 1 and 2 to the channel's consumer, and answered the get with message 3 before it sent them."""
    for seed in range(200):
        outcome = run(seed, parse_plan(GET_BESIDE_A_CONSUMER))
        assert outcome.failure is None, outcome.story
