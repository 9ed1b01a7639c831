"""`Grants`: what the limiters of channels have granted one queue (AB-127).

A channel with a channel-wide prefetch has a **limiter**: its consumers may be on several queues, so only the channel
can count. A queue requests as many deliveries as it has messages, uses what the limiter grants, and returns the rest.
"""

from __future__ import annotations

from ...contracts.channel import to_channel
from ..effects import Effects
from .consumer import ChannelRecord


class Grants:
    """The grants to the queue `queue_id`. How much of a grant is left is in the record of the channel."""

    __slots__ = ("_effects", "_queue_id", "unused")

    def __init__(self, queue_id: str, effects: Effects) -> None:
        self._queue_id = queue_id
        self._effects = effects
        #: By id: channels with grants that are not used yet.
        self.unused: dict[str, ChannelRecord] = {}

    def set_limited(self, record: ChannelRecord, is_limited: bool) -> None:
        """Note that the channel has a limiter from now on, or no longer has one. Earlier grants no longer count."""
        record.is_limited = is_limited
        record.granted, record.is_grant_requested = 0, False
        self.unused.pop(record.channel_id, None)

    def add(self, record: ChannelRecord, count: int) -> None:
        """Add a grant of the limiter for `count` more deliveries."""
        record.granted += count
        record.is_grant_requested = False
        self.unused[record.channel_id] = record

    def request(self, record: ChannelRecord, wanted: int) -> None:
        """Ask the limiter of the channel for `wanted` deliveries; one request at a time."""
        record.is_grant_requested = True
        self._effects.send(record.address, to_channel.limiter_request(self._queue_id, wanted))

    def request_now(self, record: ChannelRecord, wanted: int) -> None:
        """As `request`, but the limiter answers at once, perhaps with a grant of 0."""
        record.is_grant_requested = True
        self._effects.send(record.address, to_channel.limiter_request_now(self._queue_id, wanted))

    def give_back(self, record: ChannelRecord) -> None:
        """Return to the limiter the part of its grant that is not used."""
        self.unused.pop(record.channel_id, None)
        if record.granted > 0:
            self._effects.send(record.address, to_channel.limiter_return(self._queue_id, record.granted))
            record.granted = 0

    def give_back_all(self) -> None:
        for record in list(self.unused.values()):
            self.give_back(record)

    def forget(self, record: ChannelRecord) -> None:
        """Forget the grant of a channel that has ended."""
        self.unused.pop(record.channel_id, None)
