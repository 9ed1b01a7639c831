"""`Window`: the digests of the last messages that a queue has accepted (SP-30, SP-31).

A digest is 16 bytes. The window has two *generations*. A digest enters the recent one; when that has as many digests as
the window is wide, it becomes the older one, and the older one is given up. So the window has at least the last `size`
digests, and at most twice as many. A window that becomes wider may keep several older generations, until the recent
generation has as many digests as the new `size`.

Each generation is many small sets, because a set of a million digests takes 30 ms to grow, and as long to be freed. A
turn of the queue never waits for more than one small set to grow or to be freed: the sets of a generation that was
given up are freed one by one, as digests are added. A digest takes about 120 bytes.

The digests of transient messages are in sets of their own: a learner that copies the window must not write these to its
disk, since the messages are lost when all nodes stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Digester(Protocol):
        """A keyed hash, such as hashlib's."""

        def copy(self) -> Digester: ...

        def update(self, data: bytes, /) -> None: ...

        def digest(self) -> bytes: ...


DIGEST_SIZE = 16

#: In the place of a digest: the message has no key. The digest of a key is all zeros with a probability of 2**-128.
NO_KEY = bytes(DIGEST_SIZE)

#: About the most digests in one set. A generation has at most `MOST_SETS` sets for persistent messages, and as many for
#: transient ones.
SET_SIZE = 4096
MOST_SETS = 4096
#: A window that becomes wider begins a generation with more sets if each of its present sets would get more digests
#: than this.
MOST_PER_SET = 4 * SET_SIZE


def digester(user: str) -> Digester:
    """The keyed hash for the keys of one user: copy it, update the copy with a key, and take the copy's digest.

    The same key gives another digest for each user.
    """
    name = user.encode("utf-8", "surrogateescape")
    return blake2b(digest_size=DIGEST_SIZE, key=name if len(name) <= 64 else blake2b(name).digest())


class _Generation:
    """Digests in small sets: those of persistent messages, and those of transient ones if there are any."""

    __slots__ = ("mask", "sets", "transient")

    def __init__(self, size: int) -> None:
        sets = 1
        while sets * SET_SIZE < size and sets < MOST_SETS:
            sets *= 2
        self.mask = sets - 1
        self.sets: list[set[bytes]] = [set() for _ in range(sets)]
        self.transient: list[set[bytes]] | None = None

    def __contains__(self, digest: bytes) -> bool:
        at = int.from_bytes(digest[:2], "big") & self.mask
        return digest in self.sets[at] or self.transient is not None and digest in self.transient[at]

    def add(self, digest: bytes, is_transient: bool) -> None:
        self._of_kind(is_transient)[int.from_bytes(digest[:2], "big") & self.mask].add(digest)

    def add_all(self, digests: Sequence[bytes], is_transient: bool) -> None:
        """As `add` for each, in a third of the time."""
        sets, mask = self._of_kind(is_transient), self.mask
        if mask <= 0xFF:
            for digest in digests:
                sets[digest[1] & mask].add(digest)
        else:
            for digest in digests:
                sets[(digest[0] << 8 | digest[1]) & mask].add(digest)

    def has_any(self, digests: Sequence[bytes]) -> bool:
        """As `__contains__` for each, in a third of the time."""
        mask = self.mask
        for sets in (self.sets,) if self.transient is None else (self.sets, self.transient):
            if mask <= 0xFF:
                found = [digest in sets[digest[1] & mask] for digest in digests]
            else:
                found = [digest in sets[(digest[0] << 8 | digest[1]) & mask] for digest in digests]
            if True in found:
                return True
        return False

    def _of_kind(self, is_transient: bool) -> list[set[bytes]]:
        if not is_transient:
            return self.sets
        if self.transient is None:
            self.transient = [set() for _ in self.sets]
        return self.transient

    def all_sets(self) -> list[set[bytes]]:
        return self.sets if self.transient is None else self.sets + self.transient


class Window:
    """See the module."""

    __slots__ = ("_count", "_disposed", "_older", "_recent", "generation", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._recent = _Generation(size)
        #: The oldest one first. There is more than one only after `resize`.
        self._older: list[_Generation] = []
        #: Digests in the recent generation.
        self._count = 0
        self._disposed: list[set[bytes]] = []
        #: How often the generations have changed.
        self.generation = 0

    def __len__(self) -> int:
        return sum(len(found) for each in (self._recent, *self._older) for found in each.all_sets())

    def __contains__(self, digest: bytes) -> bool:
        prefix = int.from_bytes(digest[:2], "big")
        for each in (self._recent, *self._older):
            at = prefix & each.mask
            if digest in each.sets[at] or each.transient is not None and digest in each.transient[at]:
                return True
        return False

    def has_any(self, digests: Sequence[bytes]) -> bool:
        """Whether the window has one of these digests."""
        return self._recent.has_any(digests) or any([each.has_any(digests) for each in self._older])

    def add_new(self, digests: Sequence[bytes], is_transient: bool = False) -> None:
        """Add digests that are not in the recent generation, all of them different."""
        if not digests:
            return
        if self._count + len(digests) < self.size:
            if self._disposed:
                self._disposed.pop()
            self._recent.add_all(digests, is_transient)
            self._count += len(digests)
        else:
            for digest in digests:
                self.add(digest, is_transient)

    def add(self, digest: bytes, is_transient: bool = False) -> None:
        """Add a digest that is not in the recent generation."""
        if self._disposed:
            self._disposed.pop()
        self._recent.add(digest, is_transient)
        self._count += 1
        if self._count >= self.size:
            self._give_up_older()
            self._close_recent()

    def resize(self, size: int) -> None:
        """Remember the last `size` digests from now on, and keep those that the window has, as far as it needs them.

        Until `size` digests have come, the window may have more than twice `size`. `free` frees what it gives up.
        """
        self.size = size
        if self._count >= size:
            self._give_up_older()
            self._close_recent()
        elif size > MOST_PER_SET * (self._recent.mask + 1):
            # The sets would become too large.
            if self._count <= SET_SIZE:
                recent, self._recent = self._recent, _Generation(size)
                for found, is_transient in ((recent.sets, False), (recent.transient or (), True)):
                    for digest in (each for digests in found for each in digests):
                        self._recent.add(digest, is_transient)
                self.generation += 1
            else:
                self._close_recent()

    def _close_recent(self) -> None:
        self._older.append(self._recent)
        self._recent = _Generation(self.size)
        self._count = 0
        self.generation += 1

    def _give_up_older(self) -> None:
        for each in self._older:
            self._disposed += each.all_sets()
        self._older = []

    def free(self) -> bool:
        """Free one set that the window has given up; False if none is left."""
        if self._disposed:
            self._disposed.pop()
        return bool(self._disposed)

    def dispose(self) -> bool:
        """Free one set of a window that is not used any more; False if none is left."""
        self._give_up_older()
        self._disposed += self._recent.all_sets()
        self._recent = _NOTHING
        return self.free()

    def part(self, at: int) -> tuple[int, list[bytes], list[bytes]]:
        """Return the place of the next part, and the digests of the part at the place `at`: those of persistent
        messages and those of transient ones. The parts with the oldest digests come first.

        The first part is at 0, and the last one returns 0 again. If `generation` changes between two parts, they do
        not belong together.
        """
        places = [
            (digests, is_transient)
            for each in (*self._older, self._recent)
            for found, is_transient in ((each.sets, False), (each.transient or (), True))
            for digests in found
        ]
        persistent: list[bytes] = []
        transient: list[bytes] = []
        while at < len(places) and len(persistent) + len(transient) < SET_SIZE // 2:
            digests, is_transient = places[at]
            (transient if is_transient else persistent).extend(digests)
            at += 1
        return (at if at < len(places) else 0), persistent, transient

    def add_all(self, digests: Iterable[bytes], is_transient: bool = False) -> None:
        """Add the digests in their order, without `NO_KEY`.

        A digest that an older generation has enters the recent one as well, so that the window keeps it longer.
        """
        for digest in digests:
            if digest != NO_KEY and digest not in self._recent:
                self.add(digest, is_transient)


#: The recent generation of a window that is not used any more.
_NOTHING = _Generation(0)
_NOTHING.sets = []
