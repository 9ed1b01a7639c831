"""What the model must leave open, for the broker may do either: and not a bit more."""

from __future__ import annotations

import errno
import os

import pytest

from warren.actors.channel.queue_links import ATTEMPTS
from warren.simulation.clients.consuming import SimConsumer
from warren.simulation.clients.kinds import NAMES
from warren.simulation.model.book import SETTLING, Broken, PublishedMessage, confirmed, given_back, heard, settled
from warren.simulation.model.queue_book import QueueBook
from warren.simulation.plan import parse_plan
from warren.simulation.schedule import Schedule, run
from warren.simulation.shrinking import plainest


class OpenChannel:
    """As much of a channel as the books look at."""

    may_be_closed = is_leaving = False


@pytest.fixture
def channel():
    return OpenChannel()


@pytest.fixture
def queue():
    return QueueBook(NAMES["orders"], True, lambda: 0.0)


@pytest.fixture
def held(queue, channel):
    """A confirmed message that a consumer has and has not acknowledged."""
    message = PublishedMessage(1, channel, 1, True, 0, 20, 0.0)
    copy = queue.published(message, True)
    confirmed(message, 0.0)
    queue.delivered(channel, copy, False, SimConsumer(channel, "c1", queue, False, 0, 0.0, 0, 0), False, {})
    return copy


def test_what_somebody_held_when_the_queue_crashed_must_be_there(queue, held):
    queue.crashed(True)
    assert queue.missing() == [held]


def test_a_purge_that_meets_a_crash_may_take_what_somebody_held(queue, held, channel):
    """The queue's next process does it (AB-63), where everything is ready. RabbitMQ 3.10 does so too: a purge that was asked for while the process was dead takes all that was
    unacknowledged before."""
    queue.purge_begins(channel)
    queue.crashed(True)
    assert queue.missing() == []


def test_a_purge_that_was_answered_before_the_crash_has_left_what_somebody_held(queue, held, channel):
    queue.purge_begins(channel)
    queue.purged(channel)
    queue.crashed(True)
    assert queue.missing() == [held]


@pytest.mark.parametrize(("name", "may_go"), [("passing", True), ("orders", False)])
def test_what_is_given_back_goes_with_an_auto_delete_queue_whose_last_consumer_may_have_gone(name, may_go, channel):
    """A silent client counts as there until its heartbeats are missed (AB-25). Who gets a message meanwhile proves that the queue is there, not that it stays."""
    queue = QueueBook(NAMES[name], True, lambda: 0.0)
    queue.declare_begins()
    queue.declare_ok(0, False, None)
    silent = SimConsumer(channel, "c1", queue, False, 1, 0.0, 0, 0)
    queue.had_consumer = True
    queue.leaves(silent)
    message = PublishedMessage(1, channel, 1, True, 0, 20, 0.0)
    copy = queue.published(message, True)
    confirmed(message, 0.0)
    queue.delivered(channel, copy, False, SimConsumer(channel, "", queue, False, 0, 0.0, 0, 0), False, {})
    given_back([copy], channel)
    assert queue.missing() == ([] if may_go else [copy])


FULL_DISK = """
node store=1 credit=400,200 queues=orders
alice/1 publish queue=orders count=1 persistent=1 size=400 then=60
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


def test_a_queue_may_hear_that_the_disk_was_full_when_there_is_room_again(schedule):
    """It was recovering, and gives up: its supervisor tries again."""
    for action in schedule.plan.actions:
        schedule.perform(action)

    def is_refused(entry):
        return entry[1] == "job" and "/Queue-" in entry[2] and entry[-1] is False

    while not is_refused(schedule.world.trace[-1]):
        assert schedule.world.step(), "nothing happens any more"
    schedule.perform(ROOM_AGAIN)
    schedule.finish()
    assert any(text.startswith("gets message 1 from orders") for _, _, text in schedule.told)
    assert any(isinstance(error, OSError) for _, error in schedule.world.crashes)


@pytest.mark.parametrize("was_full_before", [False, True])
def test_no_process_may_crash_of_a_full_disk_that_has_long_had_room(schedule, was_full_before):
    if was_full_before:
        schedule.perform(schedule.plan.actions[1])
        schedule.perform(ROOM_AGAIN)
    schedule.perform(REST)
    schedule.world.crashes.append(("a-1/Queue-9", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(Broken, match="crashed by itself"):
        schedule.mishaps.look()
    schedule.world.crashes.clear()


SILENT_CONSUMER = """
node store=0 credit=400,200 heartbeat=1 queues=passing
carol/3 consume queue=passing then=60
{silence}
bob/1 bind queue=passing then=60
"""


@pytest.mark.parametrize(("silence", "is_bound"), [("carol/3 silence", None), ("", True)])
def test_a_binding_that_was_answered_may_go_if_the_last_consumer_may(silence, is_bound):
    """Carol's connection, from which nothing comes any more, is ended after three heartbeats, and the auto-delete queue goes with it, bindings and all (AB-25, AB-85, AB-86)."""
    schedule = Schedule(parse_plan(SILENT_CONSUMER.format(silence=silence)))
    try:
        schedule.begin()
        for action in schedule.plan.actions:
            schedule.perform(action)
        assert schedule.queues["passing"].is_bound is is_bound
        schedule.finish()
    finally:
        schedule.close()


SILENT_AT_THE_GRAVES = """
node store=0 credit=400,200 heartbeat=1 queues=fleeting,graves
carol/3 consume queue=graves no_ack={no_ack} then=60
carol/3 silence then=1
alice/2 publish queue=fleeting count=1 size=20 then=1
"""


@pytest.mark.parametrize("no_ack", [0, 1])
def test_a_dead_letter_may_have_gone_to_a_consumer_that_had_fallen_silent_before_the_message_was_sent(no_ack):
    """Until three heartbeats are missed she is there for the broker (AB-25): with acknowledgement the dead letter comes back as redelivered, without it is gone."""
    outcome = run(0, parse_plan(SILENT_AT_THE_GRAVES.format(no_ack=no_ack)), plainest())
    assert outcome.failure is None, outcome.story
    assert ("gets message 1 from graves, dead from fleeting (expired) (redelivered)" in outcome.story) == (not no_ack)


class Clock:
    """Seconds of the world, as a test wants them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def graves(clock):
    """With a consumer without acknowledgement, which has left at second 0 and may be there for the broker until the node is at rest."""
    book = QueueBook(NAMES["graves"], True, clock)
    book.exists = True
    book.shake(is_leaking=True)
    return book


def dying(name, graves, clock):
    """A queue whose dead letters go to the graves."""
    book = QueueBook(NAMES[name], True, clock)
    book.graves = graves
    book.exists = True
    graves.sources[name] = book
    return book


def publish(queue, channel, clock):
    message = PublishedMessage(1, channel, 1, True, 0, 20, clock())
    copy = queue.published(message, True)
    confirmed(message, clock())
    return copy


def take_dead(graves, channel, clock, source, reason, redelivered):
    """A client gets the dead letter."""
    graves.delivered(
        channel,
        graves.dead(1, source, reason),
        redelivered,
        SimConsumer(channel, "c1", graves, False, 0, clock(), 0, 0),
        False,
        {},
    )


def expire_around_a_rest(graves, channel, clock, sent_at):
    """A message of 40 ms is sent then, the node is at rest at second 1, and all is over by second 2; the message's queue."""
    fleeting = dying("fleeting", graves, clock)
    clock.now = sent_at
    publish(fleeting, channel, clock)
    clock.now = 1.0
    graves.rested()
    clock.now = 2.0
    return fleeting


def test_what_dies_before_the_node_was_at_rest_may_be_lost_or_come_again_with_a_consumer_that_left(
    graves, channel, clock
):
    fleeting = expire_around_a_rest(graves, channel, clock, 0.5)
    assert fleeting.missing() == []
    take_dead(graves, channel, clock, "fleeting", "expired", True)


def test_what_cannot_die_before_the_node_was_at_rest_must_be_there(graves, channel, clock):
    fleeting = expire_around_a_rest(graves, channel, clock, 0.99)
    assert [copy.message.number for copy in fleeting.missing()] == [1]


def test_what_cannot_die_before_the_node_was_at_rest_has_been_seen_by_nobody(graves, channel, clock):
    expire_around_a_rest(graves, channel, clock, 0.99)
    with pytest.raises(Broken, match="flagged as redelivered"):
        take_dead(graves, channel, clock, "fleeting", "expired", True)


def test_what_somebody_held_when_the_node_was_at_rest_and_rejects_then_has_been_seen_by_nobody(graves, channel, clock):
    claims = dying("claims", graves, clock)
    copy = publish(claims, channel, clock)
    claims.delivered(channel, copy, False, SimConsumer(channel, "c1", claims, False, 0, 0.0, 0, 0), False, {})
    clock.now = 1.0
    graves.rested()
    clock.now = 2.0
    grave = claims.rejects(copy)
    copy.fate = SETTLING
    settled([copy], channel)
    heard([grave])
    assert graves.missing() == [grave]
    with pytest.raises(Broken, match="flagged as redelivered"):
        take_dead(graves, channel, clock, "claims", "rejected", True)


def test_a_purge_that_nobody_heard_of_any_more_may_have_taken_what_died_before_the_node_was_at_rest(channel, clock):
    graves = QueueBook(NAMES["graves"], True, clock)
    graves.exists = True
    purger = OpenChannel()
    graves.purge_begins(purger)
    purger.is_leaving = True
    assert expire_around_a_rest(graves, channel, clock, 0.5).missing() == []


CRASH = "machine crash process=Queue then=200"
CRASH_AT_THE_START = f"machine kill then=1\n{CRASH}"
REFUSED = """
node store=1 credit=400,200 queues=line,graves
alice/2 get queue=line then=60
alice/1 publish queue=graves count=2 persistent=1 size=20 then=60
{crash}
bob/2 consume queue=graves then=60
bob/3 consume queue=graves then=60
bob/2 get queue=line then={then}
"""


def test_what_a_channel_holds_may_go_to_others_before_it_hears_that_it_is_closed_for_a_queue_that_is_down():
    """The queue could not be recovered, and is tried again after a while; who asks for it until then is refused (AB-63), and what that channel had goes back."""
    plan, went_before = parse_plan(REFUSED.format(crash=CRASH_AT_THE_START, then=60)), False
    for seed in range(12):
        outcome = run(seed, plan)
        assert outcome.failure is None, outcome.story
        refusal = outcome.story.find(
            "bob/2    is closed by the broker: 404 NOT_FOUND - queue 'line' in vhost '/' process is stopped by supervisor"
        )
        went_before |= 0 <= outcome.story.find("bob/3    gets message 1 from graves (redelivered)") < refusal
    assert went_before, "the order that this is about did not come up"


@pytest.mark.parametrize(
    ("crash", "may_be_closed"),
    [(CRASH_AT_THE_START, True), (f"{CRASH_AT_THE_START}\nmachine rest", False), (CRASH, False)],
)
def test_only_who_asks_for_a_queue_that_is_not_restarted_at_once_may_be_refused(crash, may_be_closed):
    """One that crashes at work has its next process soon, and who asks for it waits for that (AB-63)."""
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


def test_who_waits_for_a_queue_that_crashes_again_and_again_may_be_refused_in_the_end(queue):
    refused = []
    queue.may_go = refused.append
    for _ in range(ATTEMPTS - 1):
        queue.crashed(True)
    assert not queue.may_be_down and refused == []
    queue.crashed(True)
    assert queue.may_be_down and refused == [queue]


@pytest.mark.parametrize("comes_up", [QueueBook.rested, QueueBook.node_ended])
def test_a_queue_that_could_not_be_recovered_is_there_when_the_node_was_at_rest_or_is_started_again(queue, comes_up):
    queue.exists = True
    queue.crashed(True, may_stay_down=True)
    comes_up(queue)
    assert not queue.may_be_down
    queue.crashed(True)
    assert not queue.may_be_down


@pytest.mark.parametrize(("is_declared_meanwhile", "exists"), [(False, False), (True, None)])
def test_a_consumer_of_a_queue_that_was_deleted_does_not_take_along_the_one_declared_meanwhile(
    channel, is_declared_meanwhile, exists
):
    """It hears that it is cancelled when another queue, which has never had a consumer, may have the name."""
    passing = QueueBook(NAMES["passing"], True, lambda: 0.0)
    passing.declare_begins()
    passing.declare_ok(0, False, None)
    consumer = SimConsumer(channel, "c1", passing, False, 0, 0.0, 0, passing.deleted)
    passing.consumers.append(consumer)
    passing.had_consumer = True
    if is_declared_meanwhile:
        passing.declare_begins()
    begun = passing.deleted
    doomed = passing.delete_begins()
    passing.deleted_ok(doomed)
    if is_declared_meanwhile:
        passing.declare_ok(begun, False, None)
    passing.leaves(consumer)
    passing.rested()
    assert passing.exists is exists


@pytest.mark.parametrize(("binds", "is_bound"), [(0, False), (1, None)])
def test_a_bind_that_waits_while_its_queue_is_deleted_may_find_the_next_one(binds, is_bound):
    queue = QueueBook(NAMES["fleeting"], True, lambda: 0.0)
    queue.declare_begins()
    queue.declare_ok(0, False, None)
    queue.binds = binds
    queue.deleted_ok(queue.delete_begins())
    queue.declare_begins()
    queue.declare_ok(queue.deleted, False, None)
    assert queue.exists and queue.is_bound is is_bound
