"""`Deduplication`: a queue that keeps each message once, although it is published twice (SP-30).

A publisher whose connection broke before a confirm came cannot tell whether its message is in the queue. So it
publishes the message again. `Intake` asks `Deduplication` which messages of a run the queue has accepted before, drops
these, and then reports which ones it has accepted now.

A duplicate is confirmed as soon as its first message is safe, and not before. Usually that message is safe already, so
that the duplicate is confirmed at once. For that, the backing queue reports the numbers of all messages with a key when
they are safe (`BackingQueue.drain_confirmed`), and `Deduplication` keeps the numbers that have not been reported yet.

**Mirrored queues.** The master sends its mirrors the digest of each message that it accepts in the same instruction as
the message (`tell_mirrors`), and the mirrors remember it (`follow`). So a new master recognises the messages that the
old one accepted. It confirms a duplicate of one of them only when all that it took as a mirror is safe on all members
of its ring (`settled`), because the first message may not be safe yet.

**Exchanges.** A queue that deduplicates only because of exchanges that lead to it compares and remembers the messages
that came through one of these, and no others (`CameThrough`).

**Changes while the queue runs.** A policy or a binding may begin, widen, narrow or end the window at any time
(`../replica/remembering.py`). Duplicates that wait for their first message when the window ends are still confirmed as
if it went on.

Limits: no client publishes dead letters and traced messages, so they are never taken for duplicates. A message that is
refused is forgotten, because its publisher may try again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....amqp.deduplication_key import deduplication_keys
from ....store.deduplication.window import NO_KEY, Window, digester
from ....store.messages.parts import Part, split_parts

if TYPE_CHECKING:
    from ....store.deduplication.digest_log import DigestLog
    from ....store.deduplication.window import Digester
    from ....store.messages.message import Origins
    from ...contracts.channel import ConfirmRange
    from .came_through import CameThrough

#: The users whose digesters are kept.
DIGESTERS_KEPT = 64


class Deduplication:
    """See the module. `log` keeps the digests of persistent messages; None if the queue ends with its process."""

    __slots__ = (
        "_digesters",
        "_log",
        "_numbers",
        "_unsafe",
        "_unsettled",
        "_waiting",
        "came_meanwhile",
        "came_through",
        "dropped",
        "is_over",
        "tell_mirrors",
        "window",
    )

    def __init__(self, window: Window, log: DigestLog | None) -> None:
        self.window = window
        self._log = log
        #: Which messages are compared; None: all.
        self.came_through: CameThrough | None = None
        self._digesters: dict[str, Digester] = {}
        #: The digests of accepted messages that are not safe yet, by number, and their numbers.
        self._unsafe: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        #: By the number of the first message: the publishes of its duplicates whose channels await confirms.
        self._waiting: dict[int, list[Part]] = {}
        #: At a new master: the publishes of duplicates that wait for `settled`; None if none has to.
        self._unsettled: list[Part] | None = None
        #: At the master of a mirrored queue: called with what `accepted` was called with.
        self.tell_mirrors: Callable[[int, Sequence[bytes], bool], None] | None = None
        #: While a learner copies the window of another replica: the lists of digests that it has received from the
        #: master since the copy began, each with whether the messages are persistent.
        self.came_meanwhile: list[tuple[Sequence[bytes], bool]] | None = None
        #: The queue does not deduplicate any more.
        self.is_over = False
        #: How many duplicates were dropped.
        self.dropped = 0

    def digests(self, user: str, origins: Origins, contents: Sequence[bytes]) -> list[bytes] | None:
        """The digest of each content, `NO_KEY` for one that has no key or is not compared; None if all are such."""
        keys = deduplication_keys(contents)
        if self.came_through is not None:
            compared = self.came_through.which(origins, contents)
            keys = [key if is_compared else None for key, is_compared in zip(keys, compared)]
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
        """Cut the messages with these digests into stretches of new ones and of duplicates.

        Each stretch is given as the index behind its last message, and whether its messages are duplicates: of accepted
        messages, or of earlier ones of the same run, which may yet be refused.
        """
        window = self.window
        earlier = set(digests)
        if len(earlier) == len(digests) and not window.has_any(digests):
            return [(len(digests), False)]
        earlier.clear()
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
        numbers = range(first, first + len(digests))
        with_key = [(number, digest) for number, digest in zip(numbers, digests) if digest != NO_KEY]
        self.window.add_new([digest for _, digest in with_key], not is_persistent)
        self._unsafe.update(with_key)
        self._numbers.update([(digest, number) for number, digest in with_key])
        if is_persistent and self._log is not None:
            self._log.record(first, digests)
        if self.tell_mirrors is not None:
            self.tell_mirrors(first, digests, is_persistent)

    def follow(self, first: int, digests: Sequence[bytes], is_persistent: bool) -> None:
        """Note at a mirror that the master has accepted these messages."""
        self.window.add_all(digests, not is_persistent)
        if self.came_meanwhile is not None:
            self.came_meanwhile.append((digests, is_persistent))
        elif is_persistent and self._log is not None:
            self._log.record(first, digests)

    def forget(self) -> Window:
        """Forget all messages that were accepted before. Returns the window that is not used any more."""
        self.forget_on_disk()
        old, self.window = self.window, Window(self.window.size)
        return old

    def forget_on_disk(self) -> None:
        """Have the disk forget all digests. It remembers those that `copied` gets from now on, and those of messages
        that the queue accepts from now on.
        """
        if self._log is not None:
            self._log.copied([])

    def copied(self, digests: Sequence[bytes]) -> None:
        """Have the disk remember the persistent messages that another replica has accepted."""
        if self._log is not None and digests:
            self._log.copied(digests)

    def restart(self, window: Window, log: DigestLog | None) -> None:
        """Deduplicate again, with an empty window, after `end`."""
        self.window, self._log, self.is_over = window, log, False

    def resize(self, size: int) -> None:
        """Remember the last `size` messages from now on."""
        self.window.resize(size)
        if self._log is not None:
            self._log.resize(size)

    def end(self) -> Window:
        """Remember nothing from now on. Returns the window that is not used any more.

        Duplicates that wait for their first message, or for `settled`, are confirmed when `has_waiting` is false.
        """
        old, self.window, self._log = self.window, Window(1), None
        self._numbers = {}
        self._unsafe = {number: digest for number, digest in self._unsafe.items() if number in self._waiting}
        self._digesters = {}
        self.came_meanwhile = None
        self.is_over = True
        return old

    @property
    def has_waiting(self) -> bool:
        """Whether duplicates await their confirm."""
        return bool(self._waiting or self._unsettled)

    def begin(self) -> None:
        """Handle that this replica becomes the master: duplicates of what it took as a mirror wait for `settled`."""
        self._unsettled = []

    def settled(self) -> list[Part]:
        """Handle that all that this replica took as a mirror is safe. Returns the parts of the duplicates that waited
        for that.
        """
        parts, self._unsettled = self._unsettled, None
        return parts or []

    def end_mirroring(self) -> list[Part]:
        """Handle that the queue has no mirrors any more. Returns the parts of the duplicates that waited for them."""
        self.tell_mirrors = None
        return self.settled()

    def dropped_duplicates(self, digests: Sequence[bytes], parts: Sequence[Part]) -> list[Part]:
        """The queue drops duplicates with these digests; returns the parts of those that may be confirmed now."""
        self.dropped += len(digests)
        if self._unsettled is not None:
            self._unsettled += parts
            return []
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
        unsafe, numbers, waiting = self._unsafe, self._numbers, self._waiting
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
                # a narrow window may have forgotten this key, and have it again under a later number
                if numbers.get(digest) == number:
                    del numbers[digest]
                if waiting:
                    parts += waiting.pop(number, ())
        return parts
