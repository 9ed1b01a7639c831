"""A channel whose client has closed it no longer decides whether the connection reads."""

from __future__ import annotations

from warren.amqp.methods import BasicQos, ChannelClose, ChannelCloseOk


def test_a_closed_channel_does_not_stop_the_reading(line):
    """A channel closes because of an error, and learns that a link is full just before the client's close-ok reaches
    it. The connection has given its number free by then, so nothing would end the pause (CL-15).
    """
    channel, other = line.open_channel(1), line.open_channel(2)
    channel.put(ChannelClose(404, "NOT_FOUND", 0, 0))
    line.settle()
    end = channel.end

    def pause_and_end(*arguments):
        channel.tell("pause_input", 1, True)
        end(*arguments)

    channel.end = pause_and_end
    line.send(ChannelCloseOk(), channel=1)
    line.settle()
    line.send(BasicQos(0, 1, False), channel=2)
    line.settle()
    assert len(other.methods) == 1
