"""`ReplicaLimits`: what the replicas of mirrored queues on one node share, so that many of them do not fill its memory.

Each replica is a process of its own and knows nothing of the others. Both parts are counts and lists that the replicas
change directly, in the node's one thread, and every run of a node begins with new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

#: How many replicas of a node copy their queues at a time (CL-84). Each may have 4 MiB on the way to the disk.
COPIES_MOST = 4

#: Bytes that all masters of a node together retain for their mirrors before their windows shrink (CL-69).
RETAINED_MOST = 256 << 20


class Copier(Protocol):
    """A replica that copies its queue, or will."""

    def may_copy(self) -> None:
        """Look again whether this replica may copy (`CopyLimiter.take`)."""


class CopyLimiter:
    """Which replicas of a node copy their queues now, and which wait for that, in the order in which they came."""

    __slots__ = ("_copying", "_waiting")

    def __init__(self) -> None:
        self._copying: list[Copier] = []
        self._waiting: list[Copier] = []

    def take(self, copier: Copier) -> bool:
        """Whether this replica may copy now. If not, it waits, and is notified when another one has its copy."""
        if copier in self._copying:
            return True
        if copier not in self._waiting:
            self._waiting.append(copier)
        if self._waiting.index(copier) >= COPIES_MOST - len(self._copying):
            return False
        self._waiting.remove(copier)
        self._copying.append(copier)
        return True

    def give_back(self, copier: Copier) -> None:
        """Note that this replica does not copy any more, and does not wait for that either."""
        for found in (self._copying, self._waiting):
            if copier in found:
                found.remove(copier)
        for waiting in self._waiting[: COPIES_MOST - len(self._copying)]:
            waiting.may_copy()


class RetainedByMasters:
    """How many bytes of instructions the masters of a node retain for other replicas, and how many masters do."""

    __slots__ = ("bytes", "masters")

    def __init__(self) -> None:
        self.bytes = self.masters = 0

    def change(self, before: int, now: int) -> None:
        """Note that one master retains `now` bytes instead of `before`."""
        self.bytes += now - before
        self.masters += (now > 0) - (before > 0)

    def window(self, most: int) -> int:
        """What one master may retain: `most` bytes, or an equal share if all together retain too much."""
        return most if self.bytes <= RETAINED_MOST else min(most, RETAINED_MOST // self.masters)


@dataclass(slots=True)
class ReplicaLimits:
    """See the module."""

    copies: CopyLimiter = field(default_factory=CopyLimiter)
    retained: RetainedByMasters = field(default_factory=RetainedByMasters)
