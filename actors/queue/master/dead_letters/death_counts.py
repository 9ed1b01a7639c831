"""`DeathCounts`: how many messages of a queue have died, by reason (AB-154)."""

from __future__ import annotations

from .....amqp.dead_letter_headers import DELIVERY_LIMIT, EXPIRED, MAXLEN, PACED, REJECTED

#: The counts of a queue of which no message has died yet. Nearly all queues share them.
_NONE = {EXPIRED: 0, REJECTED: 0, MAXLEN: 0, DELIVERY_LIMIT: 0, PACED: 0}


class DeathCounts:
    """The counts of one queue."""

    __slots__ = ("dead", "dropped")

    def __init__(self) -> None:
        #: By reason: all messages that have died, and those among them that had no exchange to go to.
        self.dead = self.dropped = _NONE

    def add(self, reason: str, number: int, have_exchange: bool) -> None:
        if self.dead is _NONE:
            self.dead, self.dropped = dict(_NONE), dict(_NONE)
        self.dead[reason] += number
        if not have_exchange:
            self.dropped[reason] += number
