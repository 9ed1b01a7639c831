"""`DeliveryCounts`: how often messages of a quorum queue were returned, and for how long the queue remembers it."""

from __future__ import annotations

from warren.actors.queue.master import delivery_counts

from .core import Core


def quorum(**arguments):
    return Core(x_queue_type="quorum", **arguments)


def counts(core):
    return core.backing.returns


def test_only_a_quorum_queue_counts():
    assert Core().master.delivery_counts is None
    assert quorum().master.delivery_counts is not None


def test_messages_that_leave_are_forgotten():
    """The count of a message is forgotten when the message leaves: acknowledged, rejected, given up, or delivered to a
    consumer without acknowledgement.
    """
    core = quorum(x_delivery_limit=1)
    consumer = core.consume()
    core.publish(4)
    core.turn()
    core.master.settle(consumer.channel, "requeue", [range(4)])
    core.turn()
    assert counts(core) == dict.fromkeys(range(4), 1)
    core.master.settle(consumer.channel, "ack", [[0]])
    core.master.settle(consumer.channel, "reject", [[1]])
    core.master.settle(consumer.channel, "requeue", [[2]])
    assert counts(core) == {3: 1} and core.master.dead_letterer.counts.dead["delivery_limit"] == 1
    core.master.cancel(consumer.channel.channel_id, consumer.tag)
    core.master.delivery_counts.limit = None
    core.master.settle(consumer.channel, "requeue", [[3]])
    core.consume("another", no_ack=True)
    core.turn()
    assert counts(core) == {} and core.backing.totals().depth == 0


def test_counts_of_purged_messages_do_not_pile_up(monkeypatch):
    """The counts of purged messages are searched for and removed when there are many counts."""
    monkeypatch.setattr(delivery_counts, "PRUNED_AFTER", 10)
    core = quorum()
    consumer = core.consume()
    for _ in range(20):
        core.publish(10)
        core.turn()
        core.master.settle(consumer.channel, "requeue", [list(consumer.channel.pending)])
        list(core.master.purge())
        core.bodies()
    assert len(counts(core)) <= 30


def test_a_lower_limit_counts_from_the_next_return_on():
    core = quorum()
    consumer = core.consume()
    core.publish(1)
    for _ in range(3):
        core.turn()
        core.master.settle(consumer.channel, "requeue", [[0]])
    assert core.backing.totals().depth == 1
    core.master.delivery_counts.limit = 2
    core.turn()
    core.master.settle(consumer.channel, "requeue", [[0]])
    assert core.backing.totals().depth == 0
