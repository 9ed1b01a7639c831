"""`Window`: the digests of the last messages that a queue has accepted (SP-30, SP-31).

A digest is 16 bytes. The window has two *generations*. A digest enters the recent one; when that has as many digests as
the window is wide, it becomes the older one, and the older one is given up. So the window has at least the last `size`
digests, and at most twice as many.

Each generation is many small sets, because a set of a million digests takes 30 ms to grow, and as long to be freed. A
turn of the queue never waits for more than one of the small ones: what is given up is freed set by set, as digests are
added. An entry takes about 120 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
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

#: In the place of a digest: the message has no key. No digest is all zeros but by a chance of 1 in 2 to the 128.
NO_KEY = bytes(DIGEST_SIZE)

#: The digests of one set at most, about. A window has no more sets than this.
SET_SIZE = 4096
MOST_SETS = 4096


def digester(user: str) -> Digester:
    """What digests the keys of one user: copy it, update the copy with the key, and take its digest.

    The same key gives another digest for each user.
    """
    name = user.encode("utf-8", "surrogateescape")
    return blake2b(digest_size=DIGEST_SIZE, key=name if len(name) <= 64 else blake2b(name).digest())


class Window:
    """See the module."""

    __slots__ = ("_count", "_disposed", "_mask", "_older", "_recent", "generation", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        sets = 1
        while sets * SET_SIZE < size and sets < MOST_SETS:
            sets *= 2
        self._mask = sets - 1
        self._recent: list[set[bytes]] = [set() for _ in range(sets)]
        self._older: list[set[bytes]] = [set() for _ in range(sets)]
        #: Digests in the recent generation.
        self._count = 0
        self._disposed: list[set[bytes]] = []
        #: How often the recent generation has become the older one.
        self.generation = 0

    def __len__(self) -> int:
        return self._count + sum(map(len, self._older))

    def __contains__(self, digest: bytes) -> bool:
        at = int.from_bytes(digest[:2], "big") & self._mask
        return digest in self._recent[at] or digest in self._older[at]

    def add(self, digest: bytes) -> None:
        """Add a digest that is not in the recent generation."""
        if self._disposed:
            self._disposed.pop()
        self._recent[int.from_bytes(digest[:2], "big") & self._mask].add(digest)
        self._count += 1
        if self._count >= self.size:
            self._disposed = self._older
            self._older = self._recent
            self._recent = [set() for _ in range(self._mask + 1)]
            self._count = 0
            self.generation += 1

    def dispose(self) -> bool:
        """Free one set of a window that is not used any more; False if none is left."""
        for sets in (self._disposed, self._older, self._recent):
            if sets:
                sets.pop()
                return True
        return False

    def part(self, at: int) -> tuple[int, list[bytes]]:
        """Return the place of the next part, and the digests of the part at the place `at`. Older ones come first.

        The first part is at 0, and the last one returns 0 again. If `generation` changes between two parts, they do
        not belong together.
        """
        sets = self._older + self._recent
        found: list[bytes] = []
        while at < len(sets) and len(found) < SET_SIZE // 2:
            found += sets[at]
            at += 1
        return (at if at < len(sets) else 0), found

    def add_all(self, digests: Iterable[bytes]) -> None:
        """Add the digests, in their order, that are no `NO_KEY`. One that the window had becomes young again."""
        for digest in digests:
            if digest != NO_KEY and digest not in self._recent[int.from_bytes(digest[:2], "big") & self._mask]:
                self.add(digest)
