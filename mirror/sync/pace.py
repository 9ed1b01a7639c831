"""`Pace`: how fast a learner copies a queue while clients publish to it (CL-89).

A copy that takes all that the processors and disks give would leave the publishers a fifth of their rate. But a copy
need not end soon, it must only end. So while clients publish, a learner copies as many bytes as they publish and
`GAINED_PER_SECOND` more. A copy of a million messages of 1 KB then takes three quarters of a minute however fast they
publish, if the learner is able to copy so fast.

The first `UNPACED` bytes, and a queue to which clients publish little, are copied as fast as possible: a replica that
was away for a moment should be back soon.
"""

from __future__ import annotations

#: Bytes by which a learner comes nearer to the end of the queue in a second.
GAINED_PER_SECOND = 25 << 20

#: Bytes that are copied as fast as possible, at the beginning and after a time in which clients published little.
UNPACED = 128 << 20

#: Seconds by which a copy may be late and make up for it. A disk that was slow for a while makes it late, and a copy
#: that forgot that would take longer by as much.
LATE_SECONDS = 60.0

#: Clients publish little if at most so many bytes a second have come between two looks, which are `LOOK_SECONDS` apart.
LITTLE = 1 << 20
LOOK_SECONDS = 1.0


class Pace:
    """See the module. `published` is called with the bytes of what comes in the stream, and `copied` after a chunk."""

    __slots__ = ("_due", "_is_needed", "_looked_at", "_published", "_seen")

    def __init__(self) -> None:
        #: Bytes that were published since the last chunk, and since the last look.
        self._published = self._seen = 0
        self._looked_at = 0.0
        #: Whether much was published between the last two looks.
        self._is_needed = False
        #: When the next chunk is due. It lies in the past if the copy is late, or need not wait yet.
        self._due = 0.0

    def published(self, size: int) -> None:
        self._published += size

    def copied(self, size: int, now: float) -> float:
        """Note a chunk of `size` bytes. Returns the seconds to wait before the next one."""
        published, self._published = self._published, 0
        self._seen += published
        if now - self._looked_at >= LOOK_SECONDS:
            self._is_needed = self._seen > LITTLE * (now - self._looked_at)
            self._seen, self._looked_at = 0, now
        if not self._is_needed:
            self._due = max(self._due, now - UNPACED / GAINED_PER_SECOND)
            return 0.0
        self._due = max(self._due, now - LATE_SECONDS) + (size - published) / GAINED_PER_SECOND
        return max(0.0, self._due - now)
