"""Settlements that a client sends one by one reach the backing queue together."""

from __future__ import annotations

import random

from warren.actors.queue.consumers.pending_tags import joined_pieces

from ..stage import Stage, Stub


def test_single_tags_are_joined_and_ranges_are_not():
    """Single tags are joined. Ranges are not, because their cost does not grow with their messages. Negative tags
    belong to readers.
    """
    assert joined_pieces([[5], [3], [-1, -1], range(9, 11)]) == [[5, 3, 9, 10], [-1, -1]]
    assert joined_pieces([[-1], [-2]]) == [[-1], [-2]]
    pieces = [range(0, 100), [200]]
    assert joined_pieces(pieces) is pieces


def test_messages_requeued_one_by_one_are_in_their_order_again():
    """Messages that are requeued one by one are in the queue's order again, whatever order they came in, even with a
    tag twice.
    """
    with Stage() as stage:
        queue, consumer = stage.queue(), stage.create(Stub)
        queue.consume(consumer, prefetch=100)
        queue.publish(consumer, [b"%d" % number for number in range(100)])
        stage.settle()
        stage.actor(consumer).take("deliver")
        order = random.Random(1).sample(range(100), 100)
        queue.tell(consumer, "settle", "ack", [[tag] for tag in order[:20]])
        queue.tell(consumer, "settle", "requeue", [[tag] for tag in [*order[20:], order[20]]])
        stage.settle()
        again = [tag for _, _, runs in stage.actor(consumer).take("deliver") for run in runs for tag in run[2]]
        assert again == sorted(order[20:])
        assert queue.actor.backing.totals().depth == 80
