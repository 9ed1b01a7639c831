"""`RetainedBytes`: how much the channels of a node keep of publishes that were not answered."""

from __future__ import annotations


class RetainedBytes:
    """A count that all channels of a node add to, in the node's one thread."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
