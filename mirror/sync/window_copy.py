"""`WindowCopy`: how a learner copies what the queue of another replica remembers for deduplication (SP-31).

It begins when the learner has all messages, and must be over before the learner joins the ring. So whoever can become
the master has every id that a publisher may publish again. If a learner becomes the master all the same, because nobody
else is left, then it may lack ids, and never has the id of a message that it lacks: it has forgotten what an earlier
life remembered (`Deduplication.forget`).

The parts come in the order of their age (`Window.part`), and what the stream brings meanwhile is younger than all. So
the new window gives up the oldest digests first, as the window of the source does. The disk forgets what it had before.
It gets no digest of a transient message: if all nodes stop, the message is lost, and must not be dropped when it is
published again.

If the window of the queue begins, changes or ends while it is copied, the copy begins again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...actors.queue.master.deduplication import Deduplication
from ...store.deduplication.window import Window


class WindowCopy:
    """See the module. `deduplication` is None if the queue did not deduplicate when the copy began. `at` is where the
    part begins that must be requested next.
    """

    __slots__ = ("_deduplication", "_generation", "_since", "_window", "at", "is_done")

    def __init__(self, deduplication: Deduplication | None) -> None:
        self._deduplication = deduplication
        self._window = Window(1 if deduplication is None else deduplication.window.size)
        self._generation = self.at = 0
        #: The digests that the stream brings behind this position are kept; None while none are kept yet.
        self._since: int | None = None
        self.is_done = False

    @property
    def size(self) -> int:
        """How wide the window is here; 0 if there is none."""
        return 0 if self._deduplication is None else self._window.size

    def begin(self, position: int) -> None:
        """Begin to keep the digests that the stream brings behind this position, unless that has begun already."""
        if self._since is None:
            self._since = position
            if self._deduplication is not None:
                self._deduplication.came_meanwhile = []

    def end(self) -> None:
        if self._deduplication is not None:
            self._deduplication.came_meanwhile = None

    def is_too_early(self, position: int) -> bool:
        """Whether a part of this position may lack digests that the stream brought before this copy began to keep
        them.
        """
        return self._since is None or position < self._since

    def take(self, generation: int, following: int, persistent: list[bytes], transient: list[bytes]) -> Window | None:
        """Take the part that begins at `at`. It is of the source's window with this `generation`, and the next part
        begins at `following`, which is 0 at the end. Then returns the window that the copy has replaced.

        If the source or its generation has changed, the copy begins again.
        """
        deduplication = self._deduplication
        if deduplication is None:
            self.is_done = True
            return None
        if self.at == 0:
            self._generation = generation
            deduplication.forget_on_disk()
        elif generation != self._generation:
            self.at, self._window = 0, Window(self._window.size)
            return None
        self._add(persistent, True)
        self._add(transient, False)
        self.at = following
        if following:
            return None
        for digests, is_persistent in deduplication.came_meanwhile or []:
            self._add(digests, is_persistent)
        self.end()
        old, deduplication.window = deduplication.window, self._window
        self.is_done = True
        return old

    def _add(self, digests: Sequence[bytes], is_persistent: bool) -> None:
        assert self._deduplication is not None
        if is_persistent:
            self._deduplication.copied(digests)
        self._window.add_all(digests, not is_persistent)
