"""Counting how often queues refer to each message of a message store, and which of these messages have a body.

Ids are mostly a queue's number followed by a message's, so ids that differ only in the last byte are neighbours. They
share a chunk: one byte for each of 256 ids, about half a kilobyte. Ten million messages of a backlog take 20 MB.
"""

from __future__ import annotations

from collections import Counter

_FOUND = 0x80
#: The highest count in a byte; further references are counted in a table.
_MOST = 0x7F


class References:
    """`referred` counts the messages that queues refer to, `found` those of them that have a body."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, bytearray] = {}
        self._beyond: Counter[bytes] = Counter()
        self.referred = 0
        self.found = 0

    def refer(self, message_id: bytes) -> None:
        """Count a reference of a queue index. All references come before the first `find`."""
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
        """How many references there are to the message."""
        chunk = self._chunks.get(message_id[:15])
        if chunk is None:
            return 0
        count = chunk[message_id[15]] & _MOST
        return count + self._beyond[message_id] if count == _MOST and self._beyond else count

    def find(self, message_id: bytes) -> bool:
        """Note that a body was found; True if the message is referred to and this is its first body."""
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
        """Whether a body of the message was found."""
        chunk = self._chunks.get(message_id[:15])
        return chunk is not None and bool(chunk[message_id[15]] & _FOUND)

    @property
    def missing(self) -> int:
        """How many messages are referred to and have no body."""
        return self.referred - self.found
