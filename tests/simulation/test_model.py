"""What the model leaves open, because the broker may do either, and what it must not leave open."""

from __future__ import annotations

import errno
import os

import pytest

from warren.actors.channel.queue_links import ATTEMPTS
from warren.simulation.clients.consuming import SimConsumer
from warren.simulation.model.copies import (
    CopyState,
    PromiseBroken,
    PublishedMessage,
    mark_arrived,
    mark_confirmed,
    mark_returned,
    mark_settled,
)
from warren.simulation.model.queue_model import QueueModel
from warren.simulation.plan import parse_plan
from warren.simulation.queue_kinds import DEAD_LETTER_QUEUE, NAMES
from warren.simulation.schedule import Schedule, run
from warren.simulation.shrinking import plainest


class OpenChannel:
    """The attributes of a channel that the model reads."""

    may_be_closed = is_leaving = False


@pytest.fixture
def channel():
    return OpenChannel()


@pytest.fixture
def queue():
    return QueueModel(NAMES["orders"], True, lambda: 0.0)


def consumer_of(queue, channel, tag="c1", since=0.0):
    return SimConsumer(channel, tag, queue, False, 0, since, 0, queue.delete_count)


@pytest.fixture
def held(queue, channel):
    """A confirmed message that a consumer holds."""
    message = PublishedMessage(1, channel, 1, True, 0, 20, 0.0)
    copy = queue.on_publish(message, True)
    mark_confirmed(message, 0.0)
    queue.on_delivery(channel, copy, False, consumer_of(queue, channel), False, {})
    return copy


def test_a_message_held_when_its_queue_crashes_must_be_delivered_again(queue, held):
    queue.on_crash(True)
    assert queue.missing() == [held]


def test_a_message_that_was_returned_is_not_expected_in_a_queue_that_was_about_to_be_bound(channel):
    """A returned message is not expected in a queue that was about to be bound: the broker returns it and then confirms
    it, and so it is in no queue.
    """
    claims, target = (QueueModel(NAMES[name], True, lambda: 1.0) for name in ("claims", DEAD_LETTER_QUEUE))
    claims.deaths.target = target
    claims.exists = target.exists = True
    message = PublishedMessage(1, channel, 1, True, 0, 20, 1.0)
    copy = claims.on_publish(message, False)
    copy.state = CopyState.FORBIDDEN
    mark_confirmed(message, 1.0)
    assert claims.deaths.unseen() == []


def test_a_purge_that_meets_a_crash_may_remove_held_messages(queue, held, channel):
    """A purge that meets a crash may be carried out by the queue's next process, in which every message is ready, so it
    may remove messages that a consumer holds (AB-63).

    RabbitMQ 3.10 does the same: a purge that is requested while the process is dead removes all messages that were
    unacknowledged before.
    """
    queue.on_purge(channel)
    queue.on_crash(True)
    assert queue.missing() == []


def test_a_purge_answered_before_the_crash_has_left_held_messages(queue, held, channel):
    queue.on_purge(channel)
    queue.on_purge_ok(channel)
    queue.on_crash(True)
    assert queue.missing() == [held]


@pytest.mark.parametrize(("name", "may_be_gone"), [("passing", True), ("orders", False)])
def test_a_requeued_message_may_go_with_an_auto_delete_queue_whose_last_consumer_may_have_left(
    name, may_be_gone, channel
):
    """A silent client counts as a consumer until its heartbeats are missed, so its auto-delete queue may end later,
    with a message that was requeued to it (AB-25).

    A delivery in that time proves that the queue exists, not that it stays.
    """
    queue = QueueModel(NAMES[name], True, lambda: 0.0)
    queue.on_declare()
    queue.on_declare_ok(0, False, None)
    silent = consumer_of(queue, channel)
    queue.had_consumer = True
    queue.on_consumer_leaving(silent)
    message = PublishedMessage(1, channel, 1, True, 0, 20, 0.0)
    copy = queue.on_publish(message, True)
    mark_confirmed(message, 0.0)
    getter = SimConsumer(channel, "", queue, False, 0, 0.0, 0, 0)
    queue.on_delivery(channel, copy, False, getter, False, {})
    mark_returned([copy], channel)
    assert queue.missing() == ([] if may_be_gone else [copy])


#: A plan for a full disk: the queue has so much in the journal only that it must write it to its segments.
FULL_DISK = """
node store=1 credit=400,200 queues=orders
alice/1 publish queue=orders count=20 persistent=1 size=4000 then=200
machine disk low=1
machine crash process=Queue
alice/2 get queue=orders
"""
ROOM_AGAIN, REST = parse_plan("node\nmachine disk low=0\nmachine rest").actions


@pytest.fixture
def schedule():
    schedule = Schedule(parse_plan(FULL_DISK))
    schedule.begin()
    yield schedule
    schedule.close()


@pytest.mark.parametrize("was_full_before", [False, True])
def test_no_process_may_crash_of_a_full_disk_once_the_node_was_at_rest_with_room(schedule, was_full_before):
    if was_full_before:
        schedule.perform(schedule.plan.actions[1])
        schedule.perform(ROOM_AGAIN)
    schedule.perform(REST)
    schedule.world.crashes.append(("a-1/Queue-9", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(PromiseBroken, match="crashed by itself"):
        schedule.faults.after_step()
    schedule.world.crashes.clear()


SILENT_CONSUMER = """
node store=0 credit=400,200 heartbeat=1 queues=passing
carol/3 consume queue=passing then=60
{silence}
bob/1 bind queue=passing then=60
"""


@pytest.mark.parametrize(("silence", "is_bound"), [("carol/3 silence", None), ("", True)])
def test_a_confirmed_binding_may_go_if_the_last_consumer_of_an_auto_delete_queue_may_leave(silence, is_bound):
    """The broker ends Carol's silent connection after three missed heartbeats, and with it her auto-delete queue and
    the queue's confirmed binding.

    (AB-25, AB-85, AB-86.)
    """
    schedule = Schedule(parse_plan(SILENT_CONSUMER.format(silence=silence)))
    try:
        schedule.begin()
        for action in schedule.plan.actions:
            schedule.perform(action)
        assert schedule.queues["passing"].is_bound is is_bound
        schedule.finish()
    finally:
        schedule.close()


SILENT_AT_THE_DEAD_LETTERS = f"""
node store=0 credit=400,200 heartbeat=1 queues=fleeting,{DEAD_LETTER_QUEUE}
carol/3 consume queue={DEAD_LETTER_QUEUE} no_ack={{no_ack}} then=60
carol/3 silence then=1
alice/2 publish queue=fleeting count=1 size=20 then=1
"""


@pytest.mark.parametrize("no_ack", [0, 1])
def test_a_dead_letter_may_go_to_a_consumer_that_had_fallen_silent_before_the_message_was_sent(no_ack):
    """The broker delivers a dead letter to a consumer that has fallen silent, until three heartbeats are missed
    (AB-25).

    With acknowledgement the dead letter then comes back as redelivered; without, it is lost.
    """
    outcome = run(0, parse_plan(SILENT_AT_THE_DEAD_LETTERS.format(no_ack=no_ack)), plainest())
    assert outcome.failure is None, outcome.story
    line = f"receives message 1 from {DEAD_LETTER_QUEUE}, dead from fleeting (expired) (redelivered)"
    assert (line in outcome.story) == (not no_ack)


class Clock:
    """Seconds of the world, which the test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def dead_letters(clock):
    """A queue for dead letters.

    Its consumer without acknowledgement left at second 0, which the broker may notice only when the node is at rest.
    """
    queue = QueueModel(NAMES[DEAD_LETTER_QUEUE], True, clock)
    queue.exists = True
    queue.add_unseen_deliveries(without_ack=True)
    return queue


def dead_lettering(name, dead_letters, clock):
    """A queue whose dead letters go to `dead_letters`."""
    queue = QueueModel(NAMES[name], True, clock)
    queue.deaths.target = dead_letters
    queue.exists = True
    dead_letters.dead_letter_sources[name] = queue
    return queue


def publish(queue, channel, clock, expiration=None):
    message = PublishedMessage(1, channel, 1, True, 0, 20, clock(), expiration)
    copy = queue.on_publish(message, True)
    mark_confirmed(message, clock())
    return copy


def receive_dead_letter(dead_letters, channel, clock, source, reason, redelivered):
    copy = dead_letters.dead_letter_copy(1, source, reason)
    consumer = consumer_of(dead_letters, channel, since=clock())
    dead_letters.on_delivery(channel, copy, redelivered, consumer, False, {})


def expire_around_a_rest(dead_letters, channel, clock, sent_at):
    """Send a message that expires after 40 ms, with the node at rest at second 1. Returns its queue, at second 2."""
    fleeting = dead_lettering("fleeting", dead_letters, clock)
    clock.now = sent_at
    publish(fleeting, channel, clock)
    clock.now = 1.0
    dead_letters.on_rest()
    clock.now = 2.0
    return fleeting


def test_a_message_that_dies_before_the_rest_may_be_lost_or_redelivered_because_of_the_consumer_that_left(
    dead_letters, channel, clock
):
    fleeting = expire_around_a_rest(dead_letters, channel, clock, 0.5)
    assert fleeting.missing() == []
    receive_dead_letter(dead_letters, channel, clock, "fleeting", "expired", True)


def test_a_message_that_cannot_die_before_the_rest_must_become_a_dead_letter(dead_letters, channel, clock):
    fleeting = expire_around_a_rest(dead_letters, channel, clock, 0.99)
    assert [copy.message.number for copy in fleeting.missing()] == [1]


def test_the_dead_letter_of_a_message_that_cannot_die_before_the_rest_is_not_redelivered(dead_letters, channel, clock):
    expire_around_a_rest(dead_letters, channel, clock, 0.99)
    with pytest.raises(PromiseBroken, match="flagged as redelivered"):
        receive_dead_letter(dead_letters, channel, clock, "fleeting", "expired", True)


def test_the_dead_letter_of_a_message_held_at_the_rest_and_rejected_later_is_not_redelivered(
    dead_letters, channel, clock
):
    claims = dead_lettering("claims", dead_letters, clock)
    copy = publish(claims, channel, clock)
    claims.on_delivery(channel, copy, False, consumer_of(claims, channel), False, {})
    clock.now = 1.0
    dead_letters.on_rest()
    clock.now = 2.0
    dead_letter = claims.deaths.on_reject(copy)
    copy.state = CopyState.SETTLING
    mark_settled([copy], channel)
    mark_arrived([dead_letter])
    assert dead_letters.missing() == [dead_letter]
    with pytest.raises(PromiseBroken, match="flagged as redelivered"):
        receive_dead_letter(dead_letters, channel, clock, "claims", "rejected", True)


def test_a_message_that_is_refused_dies_before_it_expires(dead_letters, channel, clock):
    """A refused message dies when it is refused, before it would expire: its dead letter went to a consumer that left
    before the rest, although the message would have expired after it.

    The simulation's model took the expiry for the earliest time of the death.
    """
    refusing = dead_lettering("refusing", dead_letters, clock)
    clock.now = 0.99
    copy = publish(refusing, channel, clock, expiration=0.04)
    clock.now = 1.0
    dead_letters.on_rest()
    clock.now = 2.0
    refusing.deaths.on_refuse(copy)
    receive_dead_letter(dead_letters, channel, clock, "refusing", "maxlen", True)


def test_a_message_that_is_returned_too_often_dies_before_it_expires(dead_letters, channel, clock):
    retried = dead_lettering("retried", dead_letters, clock)
    clock.now = 0.99
    copy = publish(retried, channel, clock, expiration=0.04)
    copy.returns_least = copy.returns_most = retried.kind.delivery_limit + 1
    clock.now = 1.0
    dead_letters.on_rest()
    clock.now = 2.0
    receive_dead_letter(dead_letters, channel, clock, "retried", "delivery_limit", True)


def test_a_purge_whose_channel_ended_before_the_answer_may_remove_dead_letters_from_before_the_rest(channel, clock):
    dead_letters = QueueModel(NAMES[DEAD_LETTER_QUEUE], True, clock)
    dead_letters.exists = True
    purger = OpenChannel()
    dead_letters.on_purge(purger)
    purger.is_leaving = True
    assert expire_around_a_rest(dead_letters, channel, clock, 0.5).missing() == []


CRASH = "machine crash process=Queue then=200"
CRASH_AT_THE_START = f"machine kill then=1\n{CRASH}"
REFUSED = f"""
node store=1 credit=400,200 queues=line,{DEAD_LETTER_QUEUE}
alice/1 publish queue=line count=1 persistent=1 size=20 then=60
alice/1 publish queue={DEAD_LETTER_QUEUE} count=2 persistent=1 size=20 then=60
{{crash}}
bob/2 consume queue={DEAD_LETTER_QUEUE} then=60
bob/3 consume queue={DEAD_LETTER_QUEUE} then=60
bob/2 get queue=line then={{then}}
"""


def test_the_messages_of_a_channel_closed_for_a_queue_that_is_down_may_go_to_others_before_the_close_arrives():
    """A queue that cannot be recovered is tried again after a while. Until then the broker closes every channel that
    asks for it (AB-63) and requeues the channel's messages, which may reach others before their client gets the close.
    """
    plan, went_before = parse_plan(REFUSED.format(crash=CRASH_AT_THE_START, then=60)), False
    for seed in range(40):
        outcome = run(seed, plan)
        assert outcome.failure is None, outcome.story
        refusal = outcome.story.find(
            "bob/2    is closed by the broker: 404 NOT_FOUND - "
            "queue 'line' in vhost '/' process is stopped by supervisor"
        )
        delivery = f"bob/3    receives message 2 from {DEAD_LETTER_QUEUE} (redelivered)"
        went_before |= 0 <= outcome.story.find(delivery) < refusal
    assert went_before, "no seed has led to that order"


@pytest.mark.parametrize(
    ("crash", "may_be_closed"),
    [(CRASH_AT_THE_START, True), (f"{CRASH_AT_THE_START}\nmachine rest", False), (CRASH, False)],
)
def test_only_a_request_for_a_queue_that_is_not_restarted_at_once_may_be_refused(crash, may_be_closed):
    """A queue that crashes while it works soon has its next process, for which requests wait; only a queue that is not
    restarted at once may refuse them (AB-63).
    """
    schedule = Schedule(parse_plan(REFUSED.format(crash=crash, then=0)), chooser=plainest())
    try:
        schedule.begin()
        for action in schedule.plan.actions:
            schedule.perform(action)
        assert schedule.clients["bob"].channels[2].waits_for()
        assert schedule.clients["bob"].channels[2].may_be_closed is may_be_closed
        schedule.finish()
    finally:
        schedule.close()


def test_a_request_for_a_queue_that_crashes_again_and_again_may_be_refused_in_the_end(queue):
    refused = []
    queue.on_may_be_gone = refused.append
    for _ in range(ATTEMPTS - 1):
        queue.on_crash(True)
    assert not queue.may_be_down and refused == []
    queue.on_crash(True)
    assert queue.may_be_down and refused == [queue]


@pytest.mark.parametrize("come_up", [QueueModel.on_rest, QueueModel.on_node_end])
def test_a_queue_that_could_not_be_recovered_runs_after_a_rest_or_the_next_start(queue, come_up):
    queue.exists = True
    queue.on_crash(True, may_stay_down=True)
    come_up(queue)
    assert not queue.may_be_down
    queue.on_crash(True)
    assert not queue.may_be_down


@pytest.mark.parametrize(("is_declared_meanwhile", "exists"), [(False, False), (True, None)])
def test_the_consumer_of_a_deleted_queue_does_not_end_the_queue_declared_meanwhile(
    channel, is_declared_meanwhile, exists
):
    """The cancel of a deleted queue's consumer may arrive when another queue has the name, one that has never had a
    consumer and so must not end.
    """
    passing = QueueModel(NAMES["passing"], True, lambda: 0.0)
    passing.on_declare()
    passing.on_declare_ok(0, False, None)
    consumer = consumer_of(passing, channel)
    passing.consumers.append(consumer)
    passing.had_consumer = True
    if is_declared_meanwhile:
        passing.on_declare()
    delete_count = passing.delete_count
    deleted = passing.on_delete()
    passing.on_delete_ok(deleted)
    if is_declared_meanwhile:
        passing.on_declare_ok(delete_count, False, None)
    passing.on_consumer_leaving(consumer)
    passing.on_rest()
    assert passing.exists is exists


@pytest.mark.parametrize(("binds_in_flight", "is_bound"), [(0, False), (1, None)])
def test_a_bind_in_flight_while_its_queue_is_deleted_may_bind_the_next_one(binds_in_flight, is_bound):
    queue = QueueModel(NAMES["fleeting"], True, lambda: 0.0)
    queue.on_declare()
    queue.on_declare_ok(0, False, None)
    queue.binds_in_flight = binds_in_flight
    queue.on_delete_ok(queue.on_delete())
    queue.on_declare()
    queue.on_declare_ok(queue.delete_count, False, None)
    assert queue.exists and queue.is_bound is is_bound


def test_a_crash_may_refuse_a_commit_that_was_sent_before_it():
    """If the queue of a transaction crashes while the commit is in flight, the broker closes the channel, and the
    channel's deliveries may go to others before the client knows.
    """
    assert run(630010002599).failure is None


@pytest.mark.parametrize("end", ["delete", "owner_leaves"])
def test_what_is_committed_while_its_queue_ends_may_be_in_the_next_queue_and_what_had_arrived_may_not(channel, end):
    queue = QueueModel(NAMES["private"], True, lambda: 0.0)
    queue.on_declare()
    queue.on_declare_ok(0, False, None)
    arrived, in_transaction = (PublishedMessage(number, channel, number, True, 0, 20, 0.0) for number in (1, 2))
    gone = queue.on_publish(arrived, True)
    mark_arrived([gone])
    copy = queue.on_publish(in_transaction, True)
    copy.state = CopyState.FORBIDDEN
    if end == "delete":
        deleted = queue.on_delete()
    else:
        queue.on_owner_leaving()
    queue.on_commit(copy, False)
    if end == "delete":
        queue.on_delete_ok(deleted)
    else:
        queue.on_owner_left()
    assert (gone.state, copy.state) == (CopyState.FORBIDDEN, CopyState.UNCERTAIN)
