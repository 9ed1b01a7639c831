"""`ReceivedBytes`: how many bytes the clients of a node have sent since its memory was last measured."""

from __future__ import annotations

import math


class ReceivedBytes:
    """A count that all connections of a node add to, in the node's one thread.

    The memory monitor sets `due`. When `count` has reached it, the next connection that reads sends the monitor `look`
    and begins the count again. So the monitor gets a message only when it has to measure the memory, and what is
    received between two measurements does not grow with the number of connections.
    """

    __slots__ = ("count", "due")

    def __init__(self) -> None:
        self.count = 0
        #: Infinite where the memory in use cannot be measured.
        self.due = math.inf
