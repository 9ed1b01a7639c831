"""Faults that the simulation has found, each with the plan that showed it."""

from __future__ import annotations

import logging

from warren.simulation.plan import parse_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import plainest
from warren.store.bodies.store_engine import StoreEngine

CRASH_AT_START = """
node store=1 credit=400,200 queues=full
carol/1 publish queue=full count=1 persistent=1 size=4200 then=60
machine kill then=1
machine crash process=Queue then=60
machine kill then=3
"""


def test_a_queue_that_crashes_while_the_node_starts_keeps_its_messages():
    """The crash keeps the process from recovering, so the queue is down until the next start.

    Its confirmed bodies had been removed by then, since the message store had counted no references to them.
    """
    story = run(0, parse_plan(CRASH_AT_START), plainest()).story
    assert "receives the confirm of message 1" in story
    assert "auditor/2 receives message 1 from full" in story


GET_BESIDE_A_CONSUMER = """
node store=0 credit=400,200 queues=full
carol/2 consume queue=full prefetch=2 then=1
carol/2 publish queue=full count=5 persistent=1 size=20
carol/2 get queue=full then=1
"""


def test_a_get_does_not_overtake_earlier_deliveries():
    """The queue answered the get with message 3 before it sent messages 1 and 2 to the channel's consumer."""
    for seed in range(200):
        outcome = run(seed, parse_plan(GET_BESIDE_A_CONSUMER))
        assert outcome.failure is None, outcome.story


STOPPED_ON_A_FULL_DISK = """
node store=1 credit=400,200 queues=orders
carol/2 publish queue=orders count=1 persistent=1 size=9000 then=60
machine disk low=1 room=28000
bob/2 publish queue=orders count=5 persistent=1 size=9000 then=35
machine stop
"""


CRASH_AS_A_CHANNEL_CLOSES = """
node store=0 credit=400,200 queues=passing
alice/3 consume queue=passing then=8
bob/2 settle which=1 how=reject any=1 then=60
machine crash process=Channel after=5 late=1 then=1
alice/2 close-channel
bob/3 settle which=1 how=reject any=1 then=1
alice/1 settle which=1 how=ack any=1 then=5
machine rest then=1
bob/2 publish queue=passing count=1 persistent=1 size=400 by=exchange then=150
"""


def test_a_channel_that_crashes_as_it_closes_may_leave_its_connection():
    """It crashes in the turn in which it closes in order, so its connection goes on. The simulation's model took the
    consumers of all channels of the connection as gone, and missed that the queue ended with one of them.
    """
    assert run(0, parse_plan(CRASH_AS_A_CHANNEL_CLOSES)).failure is None


def test_a_store_that_cannot_be_closed_closes_its_index(caplog, monkeypatch):
    """When the store was closed, its last bodies waited for a sync and the disk had no room for them.

    The next start in the same process found the index open and made a new one, which clients cannot see. One order in
    a hundred leads to this.
    """
    close, refused = StoreEngine.close, []

    def closes(engine):
        try:
            close(engine)
        except OSError:
            if engine._is_open:
                refused.append(engine._directory)
            raise

    monkeypatch.setattr(StoreEngine, "close", closes)
    caplog.set_level(logging.WARNING, "warren.store")
    for seed in range(3000):
        caplog.clear()
        outcome = run(seed, parse_plan(STOPPED_ON_A_FULL_DISK))
        assert outcome.failure is None, outcome.story
        if refused:
            break
    assert refused
    assert "already open in this process" not in caplog.text
