"""`WindowCopy`: how a learner copies what the queue of another replica remembers for deduplication (SP-31).

It begins when the learner has all messages, and must be over before the learner joins the ring. So whoever can become
the master knows every id that a publisher may publish again. If a learner becomes the master all the same, because
nobody else is left, then it may lack ids, and never has the id of a message that it lacks: it has forgotten what an
earlier life remembered (`Deduplication.forget`).

The parts come in the order of their age (`Window.part`), and what the stream brings meanwhile is younger than all. So
the new window gives up the oldest digests first, as the window of the source does. The disk forgets what it had before.
"""

from __future__ import annotations

from ...actors.queue.master.deduplication import Deduplication
from ...store.deduplication.window import Window


class WindowCopy:
    """See the module. `at` is where the part begins that must be requested next."""

    __slots__ = ("_deduplication", "_generation", "_since", "_window", "at", "is_done")

    def __init__(self, deduplication: Deduplication) -> None:
        self._deduplication = deduplication
        self._window = Window(deduplication.window.size)
        self._generation = self._since = self.at = 0
        self.is_done = False

    def begin(self, position: int) -> None:
        """Keep what the stream brings behind this position, unless that has begun already."""
        if self._deduplication.came_meanwhile is None:
            self._deduplication.came_meanwhile = []
            self._since = position

    def end(self) -> None:
        self._deduplication.came_meanwhile = None

    def is_too_early(self, position: int) -> bool:
        """Whether a part of this position may lack what the stream had brought before it was kept here."""
        return position < self._since

    def take(self, generation: int, following: int, digests: list[bytes]) -> Window | None:
        """Take a part that was at `at`, of the source's window of this generation. At the end, returns the window that
        is not used any more.

        If the source or its generation has changed, the copy begins again.
        """
        deduplication = self._deduplication
        if self.at == 0:
            self._generation = generation
            deduplication.forget_on_disk()
        elif generation != self._generation:
            self.at, self._window = 0, Window(self._window.size)
            return None
        deduplication.copied(digests)
        self._window.add_all(digests)
        self.at = following
        if following:
            return None
        came_meanwhile = deduplication.came_meanwhile or []
        deduplication.copied(came_meanwhile)
        self._window.add_all(came_meanwhile)
        self.end()
        old, deduplication.window = deduplication.window, self._window
        self.is_done = True
        return old
