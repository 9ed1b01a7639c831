"""basic.qos: the limit of each consumer and the limit of the channel (AB-127 to AB-129)."""

import pytest

from warren.amqp import methods as m


@pytest.fixture
def full(channel, name):
    """A queue of 30 messages."""
    channel.queue(name)
    for number in range(30):
        channel.publish(str(number), name)
    channel.expect_ready(name, 30)
    return name


def got(channel, *queues):
    """The number of deliveries to each consumer after the queues have nothing more to deliver."""
    for queue in queues:
        channel.quiet(queue)
    counts = {}
    for event in channel.pending:
        if isinstance(event.method, m.BasicDeliver):
            counts[event.method.consumer_tag] = counts.get(event.method.consumer_tag, 0) + 1
    return counts


def settle_down(channel, count, *queues):
    """Waits for exactly `count` deliveries, and returns how many each consumer got."""
    events = channel.deliveries(count)
    counts = got(channel, *queues)
    assert not counts, f"{counts} more than {count}"
    for event in events:
        counts[event.method.consumer_tag] = counts.get(event.method.consumer_tag, 0) + 1
    return counts


def test_limit_of_each_consumer(channel, full):
    """AB-127, AB-129: a prefetch counts for each later consumer separately; settling makes room at once."""
    channel.qos(3)
    channel.consume(full, "a")
    channel.consume(full, "b")
    channel.qos(5)
    channel.consume(full, "c")
    assert settle_down(channel, 11, full) == {"a": 3, "b": 3, "c": 5}
    channel.ack(1)
    channel.nack(2, requeue=False)
    channel.reject(3, requeue=False)
    assert settle_down(channel, 3, full) == {"a": 3}


def test_requeue_makes_room(channel, name):
    """A requeue makes room in the prefetch, and the message may come back to the same consumer (AB-129)."""
    channel.queue(name)
    channel.publish("m", name)
    channel.qos(1)
    channel.consume(name, "a")
    channel.nack(channel.delivery().tag, requeue=True)
    assert channel.delivery().method.redelivered


def test_limit_0_is_no_limit(channel, full):
    """AB-127: a prefetch of 0 removes the limit."""
    channel.qos(2)
    channel.qos(0)
    channel.consume(full, "a")
    assert settle_down(channel, 30, full) == {"a": 30}


def test_no_ack_consumers_have_no_limit_of_their_own(channel, full):
    """AB-128: a prefetch per consumer does not limit a consumer without acknowledgements."""
    channel.qos(2)
    channel.consume(full, "a", no_ack=True)
    assert settle_down(channel, 30, full) == {"a": 30}


def test_get_ignores_both_limits(channel, full):
    """AB-128: basic.get returns messages although both limits are reached."""
    channel.qos(1)
    channel.qos(2, global_=True)
    channel.consume(full, "a")
    channel.delivery()
    for _ in range(5):
        assert channel.get(full) is not None
    assert got(channel, full) == {}


def test_limit_of_the_channel_is_shared(channel, full, name):
    """AB-127: all consumers of the channel share the limit, also on several queues; each ack lets one message
    through."""
    other = channel.queue(f"{name}-other")
    for number in range(10):
        channel.publish(str(number), other)
    channel.qos(4, global_=True)
    channel.consume(full, "a")
    channel.consume(full, "b")
    channel.consume(other, "c")
    events = channel.deliveries(4)
    assert got(channel, full, other) == {}
    for event in events:
        channel.ack(event.tag)
        channel.delivery()
        assert got(channel, full, other) == {}


@pytest.mark.parametrize("limit", [1, 3])
def test_consumers_share_the_limit_of_the_channel_without_starving(client, channel, name, limit):
    """Each settlement lets one consumer receive, the one that has waited longest, so that none starves (AB-122,
    AB-127).
    """
    channel.queue(name)
    channel.qos(limit, global_=True)
    for tag in "ab":
        channel.consume(name, tag)
    other = client.channel()
    for number in range(20):
        other.publish(str(number), name)
    tags = []
    for _ in range(20):
        event = channel.delivery()
        tags.append(event.method.consumer_tag)
        channel.ack(event.tag)
    assert tags == ["a", "b"] * 10


def test_queues_share_the_limit_of_the_channel_without_starving(channel, full, name):
    """AB-127: all messages of both queues arrive, and never more than the limit at a time."""
    other = channel.queue(f"{name}-other")
    for number in range(30):
        channel.publish(f"o{number}", other)
    channel.qos(3, global_=True)
    channel.consume(full, "a")
    channel.consume(other, "b")
    bodies = {"a": [], "b": []}
    outstanding = []
    for _ in range(60):
        event = channel.delivery()
        bodies[event.method.consumer_tag].append(event.body.decode())
        outstanding.append(event.tag)
        assert len(outstanding) <= 3
        if len(outstanding) == 3:
            channel.ack(outstanding.pop(0))
    assert bodies == {"a": [str(n) for n in range(30)], "b": [f"o{n}" for n in range(30)]}
    assert got(channel, full, other) == {}


def test_earlier_gets_count_towards_the_limit_of_the_channel(channel, full):
    """AB-127: a new limit counts all unacknowledged deliveries, those of basic.get included."""
    for _ in range(3):
        channel.get(full)
    channel.qos(4, global_=True)
    channel.consume(full, "a")
    assert settle_down(channel, 1, full) == {"a": 1}


def test_later_gets_do_not_count_towards_the_limit_of_the_channel(channel, full):
    """AB-128: basic.get under a limit counts neither when it is made nor when it is acknowledged."""
    channel.qos(3, global_=True)
    tags = [channel.get(full).tag for _ in range(5)]
    channel.consume(full, "a")
    first, *_ = channel.deliveries(3)
    for tag in tags:
        channel.ack(tag)
    assert settle_down(channel, 0, full) == {}
    channel.ack(first.tag)
    assert settle_down(channel, 1, full) == {"a": 1}


def test_settlements_of_a_transaction_make_room_at_its_commit(channel, full):
    """Settlements in a transaction make room at its commit, in the limit of the channel and in that of a consumer
    (AB-129).
    """
    channel.call(m.TxSelect())
    channel.qos(2)
    channel.consume(full, "own")
    channel.qos(4, global_=True)
    channel.consume(full, "shared")
    tags = {event.tag for event in channel.deliveries(4)}
    for tag in tags:
        channel.ack(tag)
    assert settle_down(channel, 0, full) == {}
    channel.call(m.TxRollback())
    assert settle_down(channel, 0, full) == {}
    for tag in tags:
        channel.ack(tag)
    channel.call(m.TxCommit())
    assert sum(settle_down(channel, 4, full).values()) == 4


def test_gets_that_a_transaction_settles_make_no_room(channel, full):
    """Messages of basic.get that a transaction settles do not count in the channel's limit, neither before nor after
    the commit (AB-128).
    """
    channel.call(m.TxSelect())
    channel.qos(1, global_=True)
    tags = [channel.get(full).tag for _ in range(4)]
    channel.consume(full, "shared")
    assert settle_down(channel, 1, full) == {"shared": 1}
    for tag in reversed(tags):
        channel.ack(tag)
        channel.ready(full)
    channel.call(m.TxCommit())
    assert settle_down(channel, 0, full) == {}


def test_limit_of_the_channel_is_raised(channel, full):
    """AB-127: after the channel's limit is raised from 2 to 5, three more messages are delivered."""
    channel.qos(2, global_=True)
    channel.consume(full, "a")
    assert settle_down(channel, 2, full) == {"a": 2}
    channel.qos(5, global_=True)
    assert settle_down(channel, 3, full) == {"a": 3}


def test_limit_of_the_channel_is_lowered(channel, full):
    """AB-129: deliveries are not taken back, and no more come until fewer than the limit are unacknowledged."""
    channel.qos(5, global_=True)
    channel.consume(full, "a")
    tags = [event.tag for event in channel.deliveries(5)]
    channel.qos(2, global_=True)
    for tag in tags[:3]:
        channel.ack(tag)
        assert got(channel, full) == {}
    channel.ack(tags[3])
    assert settle_down(channel, 1, full) == {"a": 1}


@pytest.mark.parametrize("removal", [(0, True), (7, False)])
def test_limit_of_the_channel_is_removed(channel, full, removal):
    """AB-127: a limit of 0 or any call without global removes it. Consumers without a prefetch are unlimited then."""
    channel.qos(2, global_=True)
    channel.consume(full, "a")
    assert settle_down(channel, 2, full) == {"a": 2}
    channel.qos(*removal)
    assert settle_down(channel, 28, full) == {"a": 28}


def test_limit_of_the_channel_comes_when_it_is_exceeded_already(channel, full):
    """AB-127, AB-129: a limit below the number of unacknowledged messages stops deliveries until enough are acked."""
    channel.qos(6)
    channel.consume(full, "a")
    tags = [event.tag for event in channel.deliveries(6)]
    channel.qos(4, global_=True)
    channel.ack(tags[1], multiple=True)
    assert got(channel, full) == {}
    channel.ack(tags[2])
    assert settle_down(channel, 1, full) == {"a": 1}


def test_both_limits_must_allow_a_delivery(channel, full):
    """AB-128: a consumer receives a message only if its own limit and the channel's limit permit it."""
    channel.qos(2)
    channel.qos(5, global_=True)
    channel.consume(full, "a")
    channel.consume(full, "b")
    assert settle_down(channel, 4, full) == {"a": 2, "b": 2}
    channel.qos(10)
    channel.qos(5, global_=True)
    channel.consume(full, "c")
    assert settle_down(channel, 1, full) == {"c": 1}


def test_no_ack_deliveries_do_not_add_to_the_volume_but_wait_for_it(channel, full, name):
    """AB-128: deliveries without acknowledgement do not count against the channel's limit, but wait while it is
    reached.
    """
    other = channel.queue(f"{name}-other")
    for number in range(20):
        channel.publish(str(number), other)
    channel.qos(2, global_=True)
    channel.consume(other, "free", no_ack=True)
    assert settle_down(channel, 20, other) == {"free": 20}
    channel.consume(full, "a")
    tags = [event.tag for event in channel.deliveries(2)]
    channel.publish("held back", other)
    assert got(channel, full, other) == {}
    channel.cancel("a")
    channel.ack(tags[0])
    assert settle_down(channel, 1, other) == {"free": 1}


def test_cancelled_consumers_deliveries_still_count(channel, full):
    """AB-120, AB-127: unacknowledged deliveries of a cancelled consumer count against the channel's limit until they
    are acked.
    """
    channel.qos(2, global_=True)
    channel.consume(full, "a")
    tags = [event.tag for event in channel.deliveries(2)]
    channel.cancel("a")
    channel.consume(full, "b")
    assert got(channel, full) == {}
    channel.ack(tags[0])
    assert settle_down(channel, 1, full) == {"b": 1}


def test_limit_of_the_channel_is_renewed_while_nobody_consumes(channel, full):
    """When the channel's limit is set anew after the waiting consumer was cancelled, a later consumer gets the messages
    (AB-127).
    """
    channel.qos(1, global_=True)
    channel.consume(full, "a")
    assert settle_down(channel, 1, full) == {"a": 1}
    channel.cancel("a")
    channel.qos(0, global_=True)
    channel.qos(3, global_=True)
    channel.consume(full, "b")
    assert settle_down(channel, 2, full) == {"b": 2}


def test_commit_lets_the_channel_go_on(channel, full):
    """A commit lets deliveries go on that only the limit of the channel held back (AB-129)."""
    channel.call(m.TxSelect())
    channel.qos(2, global_=True)
    channel.consume(full, "a")
    for event in channel.deliveries(2):
        channel.ack(event.tag)
    assert settle_down(channel, 0, full) == {}
    channel.call(m.TxCommit())
    assert settle_down(channel, 2, full) == {"a": 2}


def test_recover_frees_the_channel(channel, full):
    """AB-129, AB-137: basic.recover returns the messages to the queue, so the channel's limit permits them again."""
    channel.qos(3, global_=True)
    channel.consume(full, "a")
    first = channel.bodies(3)
    channel.call(m.BasicRecover(True))
    assert channel.bodies(3) == first
    assert got(channel, full) == {}


def test_slots_of_a_deleted_queue_come_back(channel, full, name):
    """Deliveries of a deleted queue count in the channel's limit until they are settled (AB-86, AB-127)."""
    other = channel.queue(f"{name}-other")
    channel.publish("o", other)
    channel.qos(1, global_=True)
    channel.consume(other, "o")
    held = channel.delivery()
    channel.consume(full, "a")
    channel.delete(other)
    assert got(channel, full) == {}
    channel.ack(held.tag)
    assert settle_down(channel, 1, full) == {"a": 1}


def test_another_channel_has_its_own_limit(client, full):
    """AB-127: each channel has its own limit, and closing one channel does not raise that of another."""
    a, b = client.channel(), client.channel()
    a.qos(2, global_=True)
    a.consume(full, "a")
    b.qos(4, global_=True)
    b.consume(full, "b")
    assert settle_down(a, 2, full) == {"a": 2}
    assert settle_down(b, 4, full) == {"b": 4}
    a.close()
    assert settle_down(b, 0, full) == {}
