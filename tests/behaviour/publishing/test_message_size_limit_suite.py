"""message_size_limit_SUITE: messages above the limit are refused (AB-105)."""

import pytest

from warren import Settings
from warren.amqp import methods as m
from warren.settings import SettingsError

LIMIT = 100_000


@pytest.fixture
def channel(connect, own_broker):
    return connect(to=own_broker(max_message_size=LIMIT).url).channel()


def test_max_message_size(channel, name):
    """A message above the limit closes the channel with 406, but not the connection."""
    channel.queue(name)
    channel.publish(b"x" * LIMIT, name)
    assert len(channel.get(name, no_ack=True).body) == LIMIT
    channel.refuses(
        406,
        f"message size {LIMIT + 1} is larger than configured max size {LIMIT}",
        m.BasicPublish(routing_key=name),
        b"x" * (LIMIT + 1),
    )
    again = channel.client.channel()
    again.publish(b"small", name)
    assert again.get(name).body == b"small"


def test_messages_before_the_large_one_arrive(channel, name):
    """AB-109: publishes before the oversized one are queued, also if they arrive in one piece with it."""
    channel.queue(name)
    channel.confirm()
    with channel.client.in_one_piece():
        channel.publish("1", name)
        channel.publish("2", name)
        channel.publish(b"x" * (LIMIT + 1), name)
        channel.publish("3", name)
    channel.refuses(406, f"message size {LIMIT + 1} is larger than configured max size {LIMIT}")
    again = channel.client.channel()
    assert again.get_all(name) == [b"1", b"2"]


def test_a_huge_message_is_refused_before_it_is_read(channel, name):
    """AB-105: the size in the content header decides; the body need not arrive."""
    content = m.BasicPublish(routing_key=name)
    channel.refuses(
        406, f"message size 50000000 is larger than configured max size {LIMIT}", content, b"x" * 50_000_000
    )


def test_limit_is_capped():
    """No setting allows more than 512 MiB."""
    with pytest.raises(SettingsError, match="max_message_size"):
        Settings(max_message_size=536_870_913)
