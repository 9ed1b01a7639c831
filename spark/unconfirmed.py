"""`UnconfirmedRows`: the rows that a task has published and that the broker has not confirmed."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .outgoing import OutgoingMessage, OutgoingPart


class _NumberedPart(NamedTuple):
    """A part whose rows have the publish numbers from `first` on, behind `bytes_before` bytes of bodies."""

    first: int
    part: OutgoingPart
    bytes_before: int


class UnconfirmedRows:
    """Counts rows and bytes of bodies. A publish number counts from 1.

    Brokers confirm in order most of the time. So one number stands for all rows up to it that are confirmed, and only
    rows behind it that were confirmed early are kept one by one.

    rows        rows that are sent and not confirmed
    body_bytes  bytes of the bodies of these rows, and of rows that were confirmed early
    """

    def __init__(self) -> None:
        self._parts: deque[_NumberedPart] = deque()
        self._added = self._added_bytes = 0
        self._sent = self._sent_bytes = 0
        #: All rows up to this publish number are confirmed; their bodies have this many bytes.
        self._confirmed = self._confirmed_bytes = 0
        self._early: set[int] = set()

    def __bool__(self) -> bool:
        return self.rows > 0

    @property
    def rows(self) -> int:
        return self._sent - self._confirmed - len(self._early)

    @property
    def body_bytes(self) -> int:
        return self._sent_bytes - self._confirmed_bytes

    def add(self, part: OutgoingPart) -> None:
        """Number the rows of a part, which are sent next."""
        self._parts.append(_NumberedPart(self._added + 1, part, self._added_bytes))
        self._added += len(part)
        self._added_bytes += part.body_bytes(len(part))

    def sent(self, rows: int) -> int:
        """Note that `rows` more rows of the part that was added last are sent. Returns the bytes of their bodies."""
        before = self._sent_bytes
        self._sent += rows
        first, part, bytes_before = self._parts[-1]
        self._sent_bytes = bytes_before + part.body_bytes(self._sent + 1 - first)
        return self._sent_bytes - before

    def confirm(self, number: int, is_multiple: bool) -> None:
        """Note that the broker has confirmed a row, or all up to it."""
        early = self._early
        if not is_multiple and number != self._confirmed + 1:
            early.add(number)
            return
        if early:
            early.difference_update([each for each in early if each <= number])
            while number + 1 in early:
                number += 1
                early.remove(number)
        self._confirmed = max(number, self._confirmed)
        parts = self._parts
        while parts:
            first, part, bytes_before = parts[0]
            count = min(self._confirmed + 1 - first, len(part))
            self._confirmed_bytes = bytes_before + part.body_bytes(count)
            if count < len(part):
                return
            parts.popleft()

    def first(self) -> OutgoingMessage:
        """The first row that is not confirmed."""
        number = self._confirmed + 1
        while number in self._early:
            number += 1
        return self.message(number)

    def message(self, number: int) -> OutgoingMessage:
        """The row with this publish number, which is not confirmed."""
        return next(part.message(number - first) for first, part, _ in reversed(self._parts) if first <= number)

    def row_with(self, body: bytes) -> int:
        """The number, in its task, of the first row with this body; -1 if there is none."""
        for first, part, _ in self._parts:
            for place in range(max(0, self._confirmed + 1 - first), min(len(part), self._sent + 1 - first)):
                found = part.message(place)
                if found.body == body:
                    return found.row
        return -1
