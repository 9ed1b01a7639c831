"""Which messages queues refer to, and which of those have a body: for ten million of them in little memory.

Message ids are mostly a queue's number followed by a message's, so those that differ in the last byte alone are neighbours, and are kept together: a byte for each
of 256, about half a kilobyte for all of them. Ten million messages of a backlog take 20 MB.
"""

from __future__ import annotations

from collections import Counter

_FOUND = 0x80
_MOST = 0x7F
"""References that are counted in the byte; beyond that in a table of their own."""


class References:
    """See the module."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, bytearray] = {}
        self._beyond: Counter[bytes] = Counter()
        self.referred = 0
        """Messages that are referred to at all."""
        self.found = 0
        """Of these, how many have a body."""

    def refer(self, message_id: bytes) -> None:
        """A queue index names the message. All this comes before the first `find`."""
        chunk = self._chunks.get(message_id[:15])
        if chunk is None:
            chunk = self._chunks[message_id[:15]] = bytearray(256)
        at = message_id[15]
        if chunk[at] == _MOST:
            self._beyond[message_id] += 1
            return
        if not chunk[at]:
            self.referred += 1
        chunk[at] += 1

    def count(self, message_id: bytes) -> int:
        """How often the message is referred to."""
        chunk = self._chunks.get(message_id[:15])
        if chunk is None:
            return 0
        count = chunk[message_id[15]] & _MOST
        return count + self._beyond[message_id] if count == _MOST and self._beyond else count

    def find(self, message_id: bytes) -> bool:
        """A body was found; True if the message is referred to, and this is the first one."""
        chunk = self._chunks.get(message_id[:15])
        if chunk is None:
            return False
        at = message_id[15]
        if not chunk[at] or chunk[at] & _FOUND:
            return False
        chunk[at] |= _FOUND
        self.found += 1
        return True

    def is_found(self, message_id: bytes) -> bool:
        chunk = self._chunks.get(message_id[:15])
        return chunk is not None and bool(chunk[message_id[15]] & _FOUND)

    @property
    def missing(self) -> int:
        """Messages that are referred to and have no body."""
        return self.referred - self.found
