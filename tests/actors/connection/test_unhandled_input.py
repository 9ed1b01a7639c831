"""A connection reads nothing more while too much of what it has read waits in its channels (FC-34)."""

from __future__ import annotations

import pytest

from warren.actors.connection import process
from warren.amqp.fields import table_from
from warren.amqp.frames import method_frame
from warren.amqp.methods import BasicAck, BasicQos, QueueDeclare

SMALL = BasicQos(0, 1, False)

#: A method whose arguments take much memory.
LARGE = QueueDeclare(queue="q", arguments=table_from({f"{number}": None for number in range(1_000)}))

#: How many of these a connection reads in these tests while its channel handles none.
ENOUGH = 5
LIMIT = (ENOUGH - 1) * len(LARGE.encode()) + 500


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(process, "UNHANDLED_MAX", LIMIT)


def test_large_methods_behind_those_that_wait_are_not_read(line):
    """A client may send any number of large methods while the channel is busy. A bounded number of them is decoded,
    and the others when these are handled.
    """
    channel = line.open_channel(1)
    channel.is_busy = True
    line.send(*[LARGE] * (ENOUGH + 3), SMALL, channel=1)
    line.settle()
    assert len(channel.methods) == ENOUGH and not line.has_ended
    channel.is_busy = False
    channel.handle()
    line.settle()
    assert channel.methods == [LARGE] * (ENOUGH + 3) + [SMALL]
    assert line.info()["pauses"] == []


def test_a_busy_channel_does_not_hold_up_the_others(line):
    """Acknowledgements on another channel are read on and on, although one channel does not handle its methods."""
    busy, other = line.open_channel(1), line.open_channel(2)
    busy.is_busy = True
    line.send(SMALL, channel=1)
    acks = method_frame(2, BasicAck(1)) * 100
    for _ in range(2 * LIMIT // len(acks) + 1):
        line.write(acks)
        line.settle()
    line.send(SMALL, channel=2)
    line.settle()
    assert other.methods == [SMALL]
    assert busy.handled_for is not None and line.info()["pauses"] == []


def test_a_channel_that_was_asked_before_it_got_more_is_asked_again(line):
    """A channel answers for what it had when it was asked. If it has got much more since, it is asked for that too."""
    busy, _ = line.open_channel(1), line.open_channel(2)
    busy.is_busy = True
    line.send(LARGE, channel=1)
    line.write(method_frame(2, BasicAck(1)) * (LIMIT // 21))
    line.settle()
    assert busy.handled_for is not None
    line.send(*[LARGE] * (2 * ENOUGH), channel=1)
    line.settle()
    assert len(busy.methods) < 2 * ENOUGH
    busy.is_busy = False
    busy.handle()
    line.settle()
    assert len(busy.methods) == 2 * ENOUGH + 1 and line.info()["pauses"] == []


def test_a_channel_that_ends_is_not_waited_for(line):
    """What a channel has not handled does not count any more when the channel ends."""
    channel, other = line.open_channel(1), line.open_channel(2)
    channel.is_busy = True
    line.send(*[LARGE] * ENOUGH, channel=1)
    line.send(SMALL, channel=2)
    line.settle()
    assert len(channel.methods) == ENOUGH and not other.methods
    channel.end(False)
    line.settle()
    assert other.methods == [SMALL]
