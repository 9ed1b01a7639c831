"""`PendingTags`: the ack tags that one channel may settle in one queue, each with the consumer that has the message.

A client may leave any number of messages unacknowledged. A single dict of three million tags has a table of 130 MB: to
let it grow once takes 85 ms, and to free it 15 ms, and all other processes wait meanwhile. So only the tags that were
added last are in one dict. When these are more than `RECENT_TAGS`, they move to *pages*, a dict each for 16,384
successive tags. Each dict is small enough to grow and to be freed within a turn, and a client that acknowledges what it
gets never has a page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Generic, TypeVar

#: How many of the tags that were added last one dict has at most; a dict of 16,384 tags takes 0.4 ms to grow. After an
#: addition that exceeds this, all of them move to pages.
RECENT_TAGS = 16_384

#: The number of a tag's page is the tag without its last `PAGE_BITS` bits, so a page has 16,384 successive tags.
PAGE_BITS = 14

Owner = TypeVar("Owner")


class NotPending:
    """The type of `NOT_PENDING`."""


#: The owner of an ack tag that is not pending. It differs from None, the owner of messages that basic.get took.
NOT_PENDING = NotPending()


class PendingTags(Generic[Owner]):
    """Ack tags, in about the order in which they were added, each with its owner."""

    __slots__ = ("_pages", "_recent")

    def __init__(self) -> None:
        self._recent: dict[int, Owner] = {}
        #: The pages by number; none is empty.
        self._pages: dict[int, dict[int, Owner]] = {}

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._pages.values()))

    def __bool__(self) -> bool:
        return bool(self._recent or self._pages)

    def __iter__(self) -> Iterator[int]:
        return chain(*self._pages.values(), self._recent)

    def __contains__(self, tag: int) -> bool:
        return tag in self._recent or tag in self._pages.get(tag >> PAGE_BITS, ())

    def owners(self) -> Iterator[Owner]:
        """The owner of each tag."""
        return chain.from_iterable(tags.values() for tags in (*self._pages.values(), self._recent))

    def add(self, tags: Sequence[int], owner: Owner) -> None:
        recent = self._recent
        recent.update(zip(tags, repeat(owner)))
        if len(recent) > RECENT_TAGS:
            self._page_out()

    def take(self, tags: Sequence[int]) -> list[Owner | NotPending]:
        """Remove tags, and return the owner of each; NOT_PENDING for a tag that is not here."""
        owners: list[Owner | NotPending] = list(map(self._recent.pop, tags, repeat(NOT_PENDING)))
        if self._pages and NOT_PENDING in owners:
            self._take_from_pages(tags, owners)
        return owners

    def take_last(self, limit: int) -> list[int]:
        """Remove the tags that were added last, up to `limit`, and return them in the order in which they were added.

        It takes the last ones, because a dict finds its last entry at once. To find the first entry, a dict passes the
        places of all entries that were removed before it.
        """
        tags = _popped(self._recent, limit)
        pages = self._pages
        while pages and len(tags) < limit:
            number, page = next(reversed(pages.items()))
            tags += _popped(page, limit - len(tags))
            if not page:
                del pages[number]
        tags.reverse()
        return tags

    def clear(self) -> None:
        self._recent.clear()
        self._pages.clear()

    def _page_out(self) -> None:
        """Move the tags that were added last to pages."""
        recent, self._recent = self._recent, {}
        for number, tags in _by_page(sorted(recent)):
            self._pages.setdefault(number, {}).update(zip(tags, map(recent.__getitem__, tags)))

    def _take_from_pages(self, tags: Sequence[int], owners: list[Owner | NotPending]) -> None:
        """Take those of `tags` that are in pages, and put their owners into `owners` in place of NOT_PENDING."""
        places = [place for place, owner in enumerate(owners) if owner is NOT_PENDING]
        places.sort(key=tags.__getitem__)
        wanted = [tags[place] for place in places]
        start = 0
        for number, part in _by_page(wanted):
            page = self._pages.get(number)
            if page is not None:
                for place, owner in zip(places[start:], map(page.pop, part, repeat(NOT_PENDING))):
                    owners[place] = owner
                if not page:
                    del self._pages[number]
            start += len(part)


def _popped(tags: dict[int, Owner], limit: int) -> list[int]:
    """Remove the last tags, up to `limit`, and return them, the last one first."""
    return [tags.popitem()[0] for _ in range(min(limit, len(tags)))]


def _by_page(tags: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Ascending tags, page by page, with the number of the page."""
    start = 0
    while start < len(tags):
        number = tags[start] >> PAGE_BITS
        stop = bisect_left(tags, (number + 1) << PAGE_BITS, start)
        yield number, tags[start:stop]
        start = stop


def joined_pieces(pieces: list[Sequence[int]]) -> list[Sequence[int]]:
    """The ack tags of messages that a client settled one by one, out of order, as one piece; other pieces as they are.

    The backing queue sorts a piece into ranges. A thousand messages that were settled in random order are then mostly a
    few ranges, and cost little more than if they had been settled in order. Negative tags are those of readers.
    """
    if sum(map(len, pieces)) > 4 * len(pieces):
        return pieces
    tags = [tag for piece in pieces for tag in piece if tag >= 0]
    return [*([tags] if tags else []), *[piece for piece in pieces if piece[0] < 0]]
