"""channel_operation_timeout_SUITE: a channel ends although a queue does not answer (AB-53, AB-178)."""

from time import monotonic

from ..inside import Inside


def test_consumers_are_gone_when_close_returns(client, name):
    """notify_down_all, first half: an orderly close removes the consumers before it returns."""
    channel, other = client.channel(), client.channel()
    channel.queue(name)
    channel.consume(name)
    channel.close()
    assert other.declare(name, passive=True).consumer_count == 0


def test_notify_down_all(connect, own_broker, name):
    """With a queue that does not answer and a timeout of 10 ms, channel and connection still end."""
    broker = own_broker(channel_operation_timeout=10)
    inside = Inside(broker)
    client = connect(to=broker.url)
    channel, second = client.channel(), client.channel()
    channel.queue(name)
    channel.consume(name)
    second.consume(name)
    with inside.ignoring(name):
        begun = monotonic()
        channel.close()
        client.close()
        assert 0.010 <= monotonic() - begun < 5
