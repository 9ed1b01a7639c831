"""No turn does more work because a queue has very many fair lanes (QP-66)."""

from __future__ import annotations

from .metered_broker import broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

LANES = 12_000

#: How many publishes the queue gets at once. Each costs a look at its headers, however many lanes there are.
PIECE = 200


def test_a_queue_with_very_many_lanes(client, broker, turns):
    """Messages of 12,000 lanes are published, listed, delivered, returned, acknowledged and purged; and the queue loses
    its lanes while they have messages.
    """
    channel = client.channel()
    channel.queue("q", durable=True)
    broker.set_policy("lanes", "^q$", {"fair-by": "header:tenant", "fair-lanes-max": 65_536}, apply_to="queues")
    channel.confirm()

    def publish(first):
        for at in range(0, LANES, PIECE):
            with client.in_one_piece():
                for number in range(at, at + PIECE):
                    channel.publish(str(number), "q", headers={"tenant": str(number)}, delivery_mode=2)
            channel.confirms(first + at, first + at + PIECE - 1)

    publish(1)
    assert len(broker.queues()) == 1
    tag = channel.consume("q")
    found = channel.bodies(LANES)
    assert sorted(map(int, found)) == [*range(LANES)]
    channel.nack(0, multiple=True)
    assert sorted(channel.bodies(LANES)) == sorted(found)
    channel.ack(0, multiple=True)
    channel.expect_ready("q", 0)
    channel.cancel(tag)
    publish(LANES + 1)
    broker.clear_policy("lanes")
    broker.set_policy("lanes", "^q$", {"fair-by": "exchange"}, apply_to="queues")
    channel.purge("q")
    channel.expect_ready("q", 0)
    channel.delete("q")


def test_a_backlog_is_sorted_into_lanes(client, broker, turns):
    """A policy gives lanes to a queue with 12,000 messages: they are sorted while others are delivered."""
    channel = client.channel()
    channel.queue("backlog", durable=True)
    channel.confirm()
    with client.in_one_piece():
        for number in range(LANES):
            channel.publish(str(number), "backlog", headers={"tenant": str(number % 4_000)}, delivery_mode=2)
    channel.confirms(1, LANES)
    turns.forget()
    broker.set_policy("lanes", "^backlog$", {"fair-by": "header:tenant", "fair-lanes-max": 65_536}, apply_to="queues")
    channel.consume("backlog")
    assert sorted(map(int, channel.bodies(LANES))) == [*range(LANES)]
    channel.ack(0, multiple=True)
    channel.expect_ready("backlog", 0)
    broker.clear_policy("lanes")
