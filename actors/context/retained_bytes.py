"""`RetainedBytes`: how many bytes of unanswered publishes to mirrored queues the channels of a node keep."""

from __future__ import annotations


class RetainedBytes:
    """A count that all channels of a node add to, in the node's one thread."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
