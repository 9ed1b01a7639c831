"""Faults that the simulation has found, each with the plan that showed it; each docstring says what went
wrong before.
"""

from __future__ import annotations

import logging
from itertools import product

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
    """A queue that crashed during a start could not recover and was down until the next one. By then its confirmed
    bodies had been removed, because the message store had counted no references to them.
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
    """A queue answered a basic.get with message 3 before it had sent the messages 1 and 2 to the same channel's
    consumer.
    """
    for seed in range(200):
        outcome = run(seed, parse_plan(GET_BESIDE_A_CONSUMER))
        assert outcome.failure is None, outcome.story


GET_BESIDE_A_GROUP = """
node store=1 credit=400,200 groups=1 queues=archive
alice/2 publish queue=archive count=1 persistent=1 size=20 then=1
carol/1 consume queue=archive prefetch=5 then=1
carol/2 publish queue=archive count=5 persistent=1 size=9000 then=2
carol/1 get queue=archive then=1
"""


def test_a_get_may_overtake_what_comes_by_way_of_a_group():
    """A basic.get and deliveries by way of a group queue may come in any order, because the group queue is another
    process; the simulation's model expected one.
    """
    for seed in range(20):
        outcome = run(seed, parse_plan(GET_BESIDE_A_GROUP))
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
    """A channel that crashes in the turn in which it closes in order leaves its connection open. The simulation's model
    took the consumers of all channels of the connection as gone, and missed that a queue ended with one of them.
    """
    assert run(0, parse_plan(CRASH_AS_A_CHANNEL_CLOSES)).failure is None


MANY_RETURNS = """
node store=1 files=small queues=retried,my-dlq
alice/1 publish queue=retried count=60 persistent=1 size=20 then=150
alice/2 consume queue=retried then=150
alice/2 settle which=0 all_but=2 how=requeue then=150
alice/1 publish queue=retried count=40 persistent=1 size=20 then=150
"""


def test_a_journal_comes_to_rest_although_the_returns_of_messages_fill_more_than_a_file():
    """A queue repeats its return counts in the journal when a file is given up. They filled the next file at once,
    which was then given up in turn, and so on for ever.
    """
    assert run(0, parse_plan(MANY_RETURNS), plainest()).failure is None


def test_a_store_that_cannot_be_closed_closes_its_index(caplog, monkeypatch):
    """When a store was closed while its last bodies waited for a sync and the disk had no room for them, its index
    stayed open.

    The next start in the same process found the index open and made a new one, which clients could not see. One order
    in hundreds leads to this, and none of the first 1,140.
    """
    close, refused = StoreEngine._close, []

    def closes(engine):
        try:
            close(engine)
        except OSError:
            if engine._is_open:
                refused.append(engine._directory)
            raise

    monkeypatch.setattr(StoreEngine, "_close", closes)
    caplog.set_level(logging.WARNING, "warren.store")
    for seed in range(1_140, 4_140):
        caplog.clear()
        outcome = run(seed, parse_plan(STOPPED_ON_A_FULL_DISK))
        assert outcome.failure is None, outcome.story
        if refused:
            break
    assert refused
    assert "already open in this process" not in caplog.text


TAKEN_BUT_NOT_RECORDED = """
node store=1 files=small credit=400,200 queues=newest,my-dlq
alice/2 bind queue=newest then=30
alice/2 bind queue=my-dlq then=60
alice/1 close-channel
alice/1 consume queue=newest then=1
machine policy then=3
bob/3 publish queue=newest count=5 persistent=1 size=400
alice/1 settle which=4 how=reject any=1 then=20
alice/1 publish queue=newest count=12 persistent=1 size=4200 by=exchange then=150
bob/2 consume queue=my-dlq prefetch=5 then=1
alice/3 close then=20
carol/3 rollback then=20
machine policy on=1 then=1
bob/2 publish queue=newest count=2 size=4000 by=exchange then=3
carol/1 reset then=3
alice/1 settle which=3 multiple=1 how=requeue any=1 then=60
bob/1 get queue=newest then=20
alice/1 get queue=newest then=60
machine kill then=2
"""


def test_a_dead_letter_is_not_flushed_before_it_is_recorded_as_taken():
    """A target wrote a dead letter to a segment before the record that it had taken it was on the disk. After a kill
    the dead letter was both in the target and in transit to it.
    """
    for seed in (142, 300010001767):
        assert run(seed, parse_plan(TAKEN_BUT_NOT_RECORDED)).failure is None


METADATA_CRASHES_WHILE_SHARDS_ARE_DELETED = """
node store=1 files=small credit=400,200 queues=wide,retried,brief,my-dlq
alice/2 bind queue=wide then=30
alice/2 bind queue=retried then=60
alice/2 bind queue=brief then=60
carol/1 publish queue=retried count=2 persistent=1 size=4200 by=exchange mandatory=1 then=3
bob/3 close then=60
bob/1 delete queue=wide then=20
alice/3 commit then=60
machine crash process=Metadata after=3 late=1 then=60
"""


def test_no_shard_loses_its_files_before_all_rows_are_gone():
    """The first shards of a queue had deleted their files when Metadata crashed, before any of their rows was deleted
    from the disk. The next start found a queue of which a part was missing.
    """
    assert run(1, parse_plan(METADATA_CRASHES_WHILE_SHARDS_ARE_DELETED)).failure is None


GET_AS_THE_CHANNEL_ENDS = """
node store=1 credit=400,200 queues=my-dlq
carol/1 publish queue=my-dlq count=1 persistent=1 size=4200 by=exchange then=80
machine power-cut then=75
machine crash process=Connection after=7 then=2
carol/1 publish queue=my-dlq count=2 persistent=1 size=9000 priority=3 by=exchange then=2
carol/3 settle which=3 multiple=1 how=reject any=1 then=20
carol/2 get queue=my-dlq then=150
"""


def test_a_get_whose_channel_has_ended_takes_no_message():
    """A basic.get had the head read from the disk and took it although its channel had ended meanwhile: the message
    stayed unacknowledged by nobody until the next start.
    """
    for seed in range(20):
        outcome = run(seed, parse_plan(GET_AS_THE_CHANNEL_ENDS))
        assert outcome.failure is None, outcome.story


CRASH_OF_A_QUEUE_THAT_HAS_JUST_WOKEN = """
node store=1 credit=400,200 heartbeat=1 turn=2 messages=differing queues=archive,brief,last
alice/2 bind queue=archive then=60
machine policy on=1 then=8
machine policy then=150
alice/2 bind queue=brief then=60
alice/2 bind queue=last then=60
alice/2 qos limit=2 then=150
machine kill then=3
machine crash process=Queue after=1 late=1 then=8
carol/1 settle which=4 all_but=3 how=ack any=1 then=150
machine policy on=1 then=20
machine policy then=3
carol/1 publish queue=last count=12 persistent=1 size=400 then=3
alice/3 bind queue=archive then=1
alice/3 commit then=8
alice/2 settle which=3 all_but=3 how=ack any=1 then=2
alice/3 cancel which=3 then=150
alice/3 consume queue=last no_ack=1 then=2
"""


def test_a_queue_confirms_after_it_crashed_before_the_journal_had_registered_it():
    """The registration of a queue's crashed process arrived at the journal after the queue's second process had opened
    it. When the journal noticed the end of the first, it forgot the queue, and took nothing more from it.
    """
    for seed in (20_008_083, *range(20)):
        outcome = run(seed, parse_plan(CRASH_OF_A_QUEUE_THAT_HAS_JUST_WOKEN))
        assert outcome.failure is None, outcome.story


CRASH_OF_THE_FIRST_VIRTUAL_HOST = """
node store=0 credit=400,200 queues=fleeting,my-dlq
machine power-cut
machine crash process=VhostSupervisor then=20
"""


def test_a_node_whose_first_virtual_host_crashes_while_it_starts_creates_it_again():
    """When its first virtual host crashed while it was being created, a new node ended; now it creates it again."""
    for seed in range(20):
        outcome = run(seed, parse_plan(CRASH_OF_THE_FIRST_VIRTUAL_HOST))
        assert outcome.failure is None, outcome.story


PURGE_OF_A_LAZY_TRANSIENT_QUEUE = """
node store=1 files=small credit=400,200 queues=news
machine policy on=1 then=60
bob/1 publish queue=news count=5 persistent=1 size=20 then=60
alice/2 purge queue=news then=20
alice/1 hang-up then=20
"""


def test_a_purge_of_a_queue_that_is_not_durable_does_not_wait_for_the_journal():
    """A purge of a queue that is not durable, with messages in segments, waited for the journal to record it.

    The journal drops the records of such queues. So the purge was answered only after 5 s, and the connection of a
    client that had gone stayed until then.
    """
    for seed in range(20):
        outcome = run(seed, parse_plan(PURGE_OF_A_LAZY_TRANSIENT_QUEUE))
        assert outcome.failure is None, outcome.story


CRASH_OF_A_QUEUE_THAT_COUNTS_RETURNS = """
node store=1 files=small credit=8,4 heartbeat=1 turn=2 queues=retried,urgent,wide,my-dlq
bob/1 publish queue=wide count=12 persistent=1 size=400 then=68
bob/2 publish queue=wide count=3 persistent=1 size=4200 priority=2 by=exchange then=150
carol/1 publish queue=retried count=3 size=400 priority=1 by=exchange then=1
carol/1 get queue=retried then=60
bob/1 get queue=retried then=60
carol/1 silence then=1
machine rest then=150
machine stop then=STOP
machine crash process=Queue after=AFTER then=60
alice/3 delete queue=wide then=60
bob/2 get queue=retried then=60
"""


def test_a_queue_that_crashes_as_it_starts_keeps_its_counts_of_returns():
    """After a clean stop only the recovery terms have the return counts. The start deletes the terms before the queue
    runs, so a queue that crashed during it lost the counts.
    """
    crashes = 0
    # Which step of a start is a queue's changes with every process that is added, so all of them are tried.
    for stop, after in product((10, 20, 40, 80), range(16)):
        plan = CRASH_OF_A_QUEUE_THAT_COUNTS_RETURNS.replace("STOP", f"{stop}").replace("AFTER", f"{after}")
        outcome = run(84_004_237, parse_plan(plan))
        assert outcome.failure is None, outcome.story
        crashes += "the process of queue 'retried' crashes" in outcome.story
    assert crashes > 5


def test_a_node_that_crashes_while_operations_wait_for_each_other_leaves_nothing_behind():
    """Two declares of one queue waited for each other when the machine lost power. They kept the node's Metadata in
    memory, and with it an open LMDB environment, so the node's next run could not open it.
    """
    assert run(7_300).failure is None
