"""`GroupRates`: how fast groups of consumers get messages, from one request for their list to the next.

Nobody follows the groups, because a queue would have to add up its consumers for each statistics interval. So the rate
of a group is that between two requests for it, and 0 at the first one.
"""

from __future__ import annotations

from typing import NamedTuple

#: The fewest and the most seconds between the two counts of a rate. Requests that follow each other sooner get the same
#: rate, and a count that is older says nothing about the present.
LEAST, MOST = 1.0, 60.0

#: Groups that are remembered. Beyond that, all are forgotten, and their next requests begin anew.
REMEMBERED = 10_000


class _Count(NamedTuple):
    delivered: int
    time: float
    rate: float


class GroupRates:
    """See the module."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _Count] = {}

    def rate(self, group: tuple[str, str], delivered: int, now: float) -> float:
        """Messages per second that the group of this virtual host and name has got, and note what it has got now.

        Its count falls when a consumer leaves, which is no negative rate.
        """
        before = self._counts.get(group)
        if before is None or now - before.time > MOST or delivered < before.delivered:
            rate = 0.0
        elif now - before.time < LEAST:
            return before.rate
        else:
            rate = round((delivered - before.delivered) / (now - before.time), 2)
        if len(self._counts) >= REMEMBERED:
            self._counts.clear()
        self._counts[group] = _Count(delivered, now, rate)
        return rate
