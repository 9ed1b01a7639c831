"""`Lease`: the right of a node to act for its cluster."""

from __future__ import annotations


class Lease:
    """Until when this node may act as a part of the majority of its cluster (CL-51). A node without one always may."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        #: A moment on the monotonic clock of this node.
        self.until = float("inf")

    def holds(self, now: float) -> bool:
        """Whether the node may act now."""
        return now < self.until
