"""What a queue hands out in one turn, until it is sent: deliveries by channel, each channel's in the order of the queue.

AMQP promises that order on each channel, whichever of its consumers a message is for; so neighbours for one consumer travel together, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .consumers import ChannelRecord, Consumer

Run = tuple[Any, bool, Any, Any]  # origin, redelivered, ack tags or None, contents


class Outbox:
    __slots__ = ("_channels",)

    def __init__(self) -> None:
        self._channels: dict[ChannelRecord, list[tuple[Consumer, list[Run]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._channels)

    def put(self, consumer: Consumer, run: Run) -> None:
        segments = self._channels.get(consumer.channel)
        if segments is None:
            self._channels[consumer.channel] = [(consumer, [run])]
        elif segments[-1][0] is consumer:
            segments[-1][1].append(run)
        else:
            segments.append((consumer, [run]))

    def drop(self, channel: ChannelRecord) -> None:
        """The channel is gone, and with it whatever was on its way there."""
        self._channels.pop(channel, None)

    def take(self) -> Iterator[tuple[Consumer, list[Run]]]:
        """Everything, in the order in which each channel is to get it."""
        channels, self._channels = self._channels, {}
        for segments in channels.values():
            yield from segments
