"""`Deduplication`: a queue that keeps each message once, although it is published twice (SP-30).

A publisher whose connection broke before a confirm came does not know whether its message is in the queue. So it
publishes the message again. `Intake` asks this part which messages of a run the queue has accepted before, drops them,
and tells it which ones it has accepted now.

A duplicate is confirmed as soon as the first message is safe, and not before: most are at once. For that, the backing
queue reports the numbers of all messages that have a key (`BackingQueue.drain_confirmed`), and this part keeps those
that it has not reported yet.

Limits: dead letters and traced messages are no publishes of a client, so they are never taken for duplicates. A message
that is refused is forgotten, because its publisher may try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....amqp.deduplication_key import deduplication_key
from ....amqp.frames import content_properties
from ....store.deduplication.window import NO_KEY, Window, digester
from ....store.messages.parts import Part, split_parts

if TYPE_CHECKING:
    from ....store.deduplication.digest_log import DigestLog
    from ....store.deduplication.window import Digester
    from ...contracts.channel import ConfirmRange

#: The users whose digesters are kept.
DIGESTERS_KEPT = 64


class Deduplication:
    """See the module. `log` keeps the digests of persistent messages; None if the queue ends with its process."""

    __slots__ = ("_digesters", "_log", "_numbers", "_unsafe", "_waiting", "dropped", "window")

    def __init__(self, window: Window, log: DigestLog | None) -> None:
        self.window = window
        self._log = log
        self._digesters: dict[str, Digester] = {}
        #: The digests of accepted messages that are not safe yet, by number, and their numbers.
        self._unsafe: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        #: By the number of the first message: the publishes of its duplicates whose channels await confirms.
        self._waiting: dict[int, list[Part]] = {}
        #: How many duplicates were dropped.
        self.dropped = 0

    def digests(self, user: str, contents: Sequence[bytes]) -> list[bytes] | None:
        """The digest of each content, `NO_KEY` for one without a key; None if none has a key."""
        keys = [deduplication_key(content_properties(content)) for content in contents]
        if keys.count(None) == len(keys):
            return None
        ours = self._digesters.get(user)
        if ours is None:
            if len(self._digesters) >= DIGESTERS_KEPT:
                self._digesters.clear()
            ours = self._digesters[user] = digester(user)
        found = []
        for key in keys:
            if key is None:
                found.append(NO_KEY)
            else:
                copy = ours.copy()
                copy.update(key)
                found.append(copy.digest())
        return found

    def stretches(self, digests: Sequence[bytes]) -> list[tuple[int, bool]]:
        """Where the messages with these digests turn from new ones to duplicates, and back.

        Each stretch as the place behind it, and whether its messages are duplicates: of accepted messages, or of
        earlier ones of the same run, which may yet be refused.
        """
        window = self.window
        earlier: set[bytes] = set()
        found: list[tuple[int, bool]] = []
        was_known = False
        for at, digest in enumerate(digests):
            is_known = digest != NO_KEY and (digest in earlier or digest in window)
            earlier.add(digest)
            if is_known is not was_known:
                if at:
                    found.append((at, was_known))
                was_known = is_known
        found.append((len(digests), was_known))
        return found

    def is_known(self, digest: bytes) -> bool:
        return digest != NO_KEY and digest in self.window

    def accepted(self, first: int, digests: Sequence[bytes], is_persistent: bool) -> None:
        """Note that the queue has accepted messages under the numbers from `first` on, in this turn."""
        window, unsafe, numbers = self.window, self._unsafe, self._numbers
        for number, digest in enumerate(digests, first):
            if digest != NO_KEY:
                window.add(digest)
                unsafe[number] = digest
                numbers[digest] = number
        if is_persistent and self._log is not None:
            self._log.record(first, digests)

    def dropped_duplicates(self, digests: Sequence[bytes], parts: Sequence[Part]) -> list[Part]:
        """The queue drops duplicates with these digests; returns the parts of those that may be confirmed now."""
        self.dropped += len(digests)
        numbers = self._numbers
        if not numbers or not any(digest in numbers for digest in digests):
            return list(parts)
        safe: list[Part] = []
        rest = list(parts)
        for digest in digests:
            one, rest = split_parts(rest, 1)
            number = numbers.get(digest)
            if number is None:
                safe += one
            else:
                self._waiting.setdefault(number, []).extend(one)
        return safe

    def are_safe(self, ranges: Sequence[ConfirmRange]) -> list[Part]:
        """Messages with numbers in these closed ranges are safe; returns the parts of their duplicates."""
        unsafe = self._unsafe
        parts: list[Part] = []
        for first, last in ranges:
            if not unsafe:
                break
            if last - first < len(unsafe):
                found = [number for number in range(first, last + 1) if number in unsafe]
            else:
                found = [number for number in unsafe if first <= number <= last]
            for number in found:
                digest = unsafe.pop(number)
                if self._numbers.get(digest) == number:  # a narrow window has the same key twice by now
                    del self._numbers[digest]
                parts += self._waiting.pop(number, ())
        return parts
