"""`Lease`: the right of a node to act for its cluster."""

from __future__ import annotations

from collections.abc import Callable

#: The value of `Lease.until` for a lease that never ends.
FOREVER = float("inf")


class Lease:
    """Until when this node may act as a part of the majority of its cluster (CL-51). A node without one always may."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        #: A moment on the monotonic clock of this node.
        self.until = FOREVER

    def holds(self, now: float) -> bool:
        """Whether the node may act now."""
        return now < self.until

    def has_ended(self, clock: Callable[[], float]) -> bool:
        """Whether the node may not act now. The clock is read only if the lease has an end."""
        return self.until != FOREVER and not self.holds(clock())
