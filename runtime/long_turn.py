"""`LongTurnRecord`: the record of a turn that took long, while all other processes of the node waited."""

from __future__ import annotations

from typing import NamedTuple


class LongTurnRecord(NamedTuple):
    """One of the longest turns."""

    #: Seconds of processor time.
    seconds: float
    #: Which process had the turn, for example `queue 'orders' in vhost '/'`.
    process: str
    #: The last message that it handled, or what it did instead of handling one.
    message: str
    #: When the turn ended, in seconds since the epoch.
    ended_at: float
