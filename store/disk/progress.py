"""How recovery reports its progress while it reads the files of a virtual host."""

from __future__ import annotations


class RecoveryProgress:
    """Receives the progress of a recovery; this base class ignores it.

    The threads that read call it. Several virtual hosts are recovered at a time, each in phases.
    """

    def enter(self, vhost: str) -> RecoveryProgress:
        """Note that the recovery of this virtual host begins, and return what receives its progress."""
        return self

    def begin(self, phase: str, total: int) -> None:
        """Note that a phase begins, which reads `total` bytes."""

    def advance(self, size: int) -> None:
        """`size` more bytes of this phase have been read."""

    def leave(self) -> None:
        """Note that the virtual host is recovered."""


NO_PROGRESS = RecoveryProgress()
