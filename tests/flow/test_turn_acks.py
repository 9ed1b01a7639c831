"""No turn does more work because a client sends many acknowledgements at once."""

from __future__ import annotations

from warren.amqp import methods as m
from warren.amqp.frames import method_frame

from .metered_broker import broker, client, metered_broker, turns

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker", "turns"]

#: So many acks fit into one read of the socket.
MANY = 24_000


def test_acks_of_single_messages_in_one_piece(client, broker, turns):
    """Many acks in one write, each of one message, are all handled, in turns of bounded work."""
    channel = client.channel()
    channel.queue("q")
    with client.in_one_piece():
        for _ in range(MANY):
            channel.publish("x", "q")
    channel.consume("q")
    for _ in range(MANY):
        channel.wait(m.BasicDeliver)
    (queue,) = broker.queues()
    assert queue.messages_unacknowledged == MANY
    turns.forget()
    client.write(b"".join([method_frame(channel.number, m.BasicAck(tag, False)) for tag in range(1, MANY + 1)]))
    channel.call(m.BasicQos())
    (queue,) = broker.queues()
    assert not queue.messages_unacknowledged
    channel.delete("q")
