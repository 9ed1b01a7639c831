"""Who wants to know how far recovery is, when there is much to look through."""

from __future__ import annotations


class Progress:
    """Called by whichever thread does the work; one virtual host at a time is recovered, in phases. This one wants to know nothing."""

    def enter(self, vhost: str) -> None:
        """What follows is about that virtual host."""

    def begin(self, phase: str, total: int) -> None:
        """There are so many bytes to look through."""

    def advance(self, size: int) -> None:
        """So many more of them have been."""

    def leave(self) -> None:
        """That virtual host is recovered."""


NO_PROGRESS = Progress()
