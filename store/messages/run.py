"""A run of messages inside a queue: consecutive numbers and one fate.

`run_queue` holds ready runs, `pending_runs` those delivered and not yet acknowledged.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ...seams import seam
from .arrivals import UNKNOWN, Arrived, extended, part_of
from .ascending_runs import AscendingRuns
from .message import (
    Expiries,
    FetchedMessages,
    Origin,
    Origins,
    QueuedMessage,
    Sizes,
    body_sizes,
    each_of,
    expiries_of,
    have_same_fate,
    slice_of,
)
from .spans import consecutive
from .untracked import UNTRACKED_FROM, untrack

# `Run.kind` is a sum of these.
#: The bodies belong in a message store, because they are too large for the index. That is decided once, at publish.
TO_STORE = 1
#: The bodies are in the store.
IN_STORE = 2
#: The index has an entry for each message, and its body unless that is TO_STORE.
INDEXED = 4
#: The slots are stubs: the bodies are in the store, and not in memory. Only a run that is TO_STORE can be ABSENT.
ABSENT = 8

#: A run shorter than this takes in its successor, so that single publishes do not cost a run each.
COALESCE_BELOW = 256


class Run:
    """The messages with the numbers `first .. first + len(contents) - 1`.

    contents          a slot for each message; None for a message settled in `PendingRuns`, which leaves a hole
    origins           where the messages came from; `origin` is one of them, for the fate that all of them share
    expiries          when the messages expire, parallel to `contents` if it is a list
    redelivered       the messages may have been delivered before
    body_bytes        sum of the body sizes of the slots that are not None
    sizes             body sizes, None until they are measured
    live              how many slots are not None
    kind              where the bodies and the index entries are: `TO_STORE` and the others above
    id_base           from which the owner of the run makes message ids (see `placement`); runs that differ in `kind` or
                      `id_base` are never joined
    arrived           when the messages arrived (see `arrivals`)
    """

    __slots__ = (
        "first",
        "contents",
        "origin",
        "origins",
        "expiries",
        "redelivered",
        "body_bytes",
        "sizes",
        "live",
        "kind",
        "id_base",
        "arrived",
    )

    def __init__(
        self,
        first: int,
        contents: list[Any],
        origins: Origins,
        expiries: Expiries,
        redelivered: bool,
        body_bytes: int,
        sizes: Sizes | None = None,
        kind: int = 0,
        id_base: int = 0,
        arrived: Arrived = UNKNOWN,
    ) -> None:
        self.first = first
        self.contents = contents
        #: The column of origins, parallel to `contents` if it is a list.
        self.origins = origins
        #: One of the origins, from which the fate of all messages is read, because they share it.
        self.origin: Origin = origins[0] if isinstance(origins, list) else origins
        self.expiries = expiries
        self.redelivered = redelivered
        self.body_bytes = body_bytes
        self.sizes = sizes
        self.live = len(contents)
        self.kind = kind
        self.id_base = id_base
        self.arrived = arrived
        if self.live >= UNTRACKED_FROM:
            untrack(contents)
            if isinstance(origins, list):
                untrack(origins)
            if isinstance(expiries, list):
                untrack(expiries)

    @property
    def expiry(self) -> int | None:
        """When the first message expires."""
        expiries = self.expiries
        return expiries[0] if isinstance(expiries, list) else expiries

    @property
    def end(self) -> int:
        """The number after the last message."""
        return self.first + len(self.contents)

    def measured(self) -> Sizes:
        """The body sizes. They are measured at the first call: a run that is taken whole never needs them."""
        if self.sizes is None:
            self.sizes = body_sizes(self.contents)
        return self.sizes

    def size_of(self, piece: slice, count: int) -> int:
        """Body bytes of the `count` slots of `piece`."""
        sizes = self.measured()
        return sizes * count if isinstance(sizes, int) else sum(sizes[piece])

    def size_at(self, index: int) -> int:
        """Body bytes of one slot."""
        sizes = self.measured()
        return sizes if isinstance(sizes, int) else sizes[index]

    def origin_at(self, index: int) -> Origin:
        origins = self.origins
        return origins[index] if isinstance(origins, list) else origins

    def expiry_at(self, index: int) -> int | None:
        expiries = self.expiries
        return expiries[index] if isinstance(expiries, list) else expiries

    def expired(self, now: int, most: int) -> int:
        """How many messages at the start of the run expire no later than `now`, up to the first that does not, or to
        `most`.
        """
        expiries = self.expiries
        if not isinstance(expiries, list):
            return min(most, len(self.contents)) if expiries is not None and expiries <= now else 0
        for index, expiry in enumerate(islice(expiries, most)):
            if expiry is None or expiry > now:
                return index
        return min(most, len(expiries))

    def accepts(
        self, first: int, origin: Origin, expiries: Expiries, redelivered: bool, kind: int = 0, id_base: int = 0
    ) -> bool:
        """Whether messages from the number `first` on may be added at the end."""
        contents = self.contents
        return (
            len(contents) < COALESCE_BELOW
            and self.first + len(contents) == first
            and _may_share(self.expiries, expiries)
            and self.redelivered == redelivered
            and self.kind == kind
            and self.id_base == id_base
            and have_same_fate(self.origin, origin)
        )

    @seam("the origins of a run that grows")
    def extend(
        self,
        contents: Sequence[bytes],
        origins: Origins,
        expiries: Expiries,
        body_bytes: int,
        arrived: Arrived = UNKNOWN,
    ) -> None:
        """Add messages at the end; the other arguments are those of the added ones."""
        if arrived != self.arrived:
            self.arrived = extended(self.arrived, self.first, arrived, self.end)
        if self.sizes is not None:
            # Measure only the new part, or a fetch after each publish would measure the whole run again.
            added = body_sizes(contents)
            if added != self.sizes or not isinstance(added, int):
                self.sizes = _spread(self.sizes, len(self.contents)) + _spread(added, len(contents))
        own = self.origins
        if isinstance(own, list) or own != origins:
            if not isinstance(own, list):
                own = self.origins = [own] * len(self.contents)
            own += each_of(origins, len(contents))
        known = self.expiries
        if isinstance(known, list) or isinstance(expiries, list):
            if not isinstance(known, list):
                known = self.expiries = [known] * len(self.contents)
            known += each_of(expiries, len(contents))
        self.contents += contents
        self.live += len(contents)
        self.body_bytes += body_bytes

    def complete(self) -> None:
        """Note that a run of higher numbers follows, so that this one no longer grows at its end."""
        if len(self.contents) >= UNTRACKED_FROM and gc.is_tracked(self.contents):
            untrack(self.contents)
            if isinstance(self.origins, list):
                untrack(self.origins)
            if isinstance(self.expiries, list):
                untrack(self.expiries)

    def join(self, other: Run) -> None:
        """Add the messages of `other`, whose numbers follow or precede those of this run directly."""
        is_below = other.first < self.first
        sizes, added = self.measured(), other.measured()
        if sizes != added or not isinstance(sizes, int):
            mine, theirs = _spread(sizes, len(self.contents)), _spread(added, len(other.contents))
            self.sizes = theirs + mine if is_below else mine + theirs
        origins = self.origins
        if isinstance(origins, list) or origins != other.origins:
            mine_, theirs_ = each_of(origins, len(self.contents)), each_of(other.origins, len(other.contents))
            self.origins = theirs_ + mine_ if is_below else mine_ + theirs_
        if isinstance(self.expiries, list) or isinstance(other.expiries, list):
            low, high = (other, self) if is_below else (self, other)
            self.expiries = each_of(low.expiries, len(low.contents)) + each_of(high.expiries, len(high.contents))
        if not isinstance(self.arrived, int) or self.arrived != other.arrived:
            low, high = (other, self) if is_below else (self, other)
            times = part_of(low.arrived, low.first, low.end), part_of(high.arrived, high.first, high.end)
            self.arrived = extended(times[0], low.first, times[1], high.first)
        if is_below:
            self.first = other.first
            self.contents[:0] = other.contents
        else:
            self.contents += other.contents
        self.live += other.live
        self.body_bytes += other.body_bytes

    def take(self, count: int) -> Run:
        """Cut off the first `count` messages, fewer than the run has, and return them as a run."""
        taken = self.contents[:count]
        taken_bytes = self.size_of(slice(0, count), count)
        sizes, origins, expiries = self.measured(), self.origins, self.expiries
        if not isinstance(sizes, int):
            self.sizes = sizes[count:]
            sizes = sizes[:count]
        if isinstance(origins, list):
            self.origins = origins[count:]
            origins = origins[:count]
        if isinstance(expiries, list):
            self.expiries = expiries[count:]
            expiries = expiries[:count]
        arrived = self.arrived
        if not isinstance(arrived, int):
            middle = self.first + count
            self.arrived = part_of(arrived, middle, self.end)
            arrived = part_of(arrived, self.first, middle)
        head = Run(
            self.first,
            taken,
            origins,
            expiries,
            self.redelivered,
            taken_bytes,
            sizes,
            self.kind,
            self.id_base,
            arrived,
        )
        # Deleting the slots, rather than keeping an offset, frees their bodies, which may be large.
        del self.contents[:count]
        self.first += count
        self.live -= count
        self.body_bytes -= taken_bytes
        return head

    def part(self, start: int, stop: int) -> Run:
        """A copy of the slots from `start` to before `stop`, which have no holes."""
        if start == 0 and stop == len(self.contents):
            return Run(
                self.first,
                self.contents[:],
                slice_of(self.origins, slice(None)),
                expiries_of(self.expiries, slice(None)),
                self.redelivered,
                self.body_bytes,
                self.sizes,
                self.kind,
                self.id_base,
                part_of(self.arrived, self.first, self.end),
            )
        sizes = self.measured()
        return Run(
            self.first + start,
            self.contents[start:stop],
            slice_of(self.origins, slice(start, stop)),
            expiries_of(self.expiries, slice(start, stop)),
            self.redelivered,
            self.size_of(slice(start, stop), stop - start),
            sizes if isinstance(sizes, int) else sizes[start:stop],
            self.kind,
            self.id_base,
            part_of(self.arrived, self.first + start, self.first + stop),
        )

    def around(self, start: int, stop: int) -> list[Run]:
        """Copies of the messages below the number `start`, and of those from the number `stop` on.

        A copy may have holes, but not at its ends; there is none of a side without messages.
        """
        return [
            copy
            for low, high in ((0, start - self.first), (stop - self.first, len(self.contents)))
            if low < high and (copy := self._copy(low, high)) is not None
        ]

    def _copy(self, low: int, high: int) -> Run | None:
        """A copy of the slots from `low` to before `high` without the holes at its ends; None if it has only holes."""
        contents = self.contents
        while low < high and contents[low] is None:
            low += 1
        while high > low and contents[high - 1] is None:
            high -= 1
        if low == high:
            return None
        gone = contents[low:high].count(None) if self.live < len(contents) else 0
        copy = self.part(low, high)
        if gone:
            sizes = copy.sizes
            copy.live -= gone
            if isinstance(sizes, int):
                copy.body_bytes -= sizes * gone
            elif sizes is not None:
                copy.body_bytes = sum([size for size, content in zip(sizes, copy.contents) if content is not None])
        return copy

    def without_holes(self) -> list[Run]:
        """This run if it has no holes, else copies of the pieces between them."""
        if self.live == len(self.contents):
            return [self]
        return [
            self.part(piece.start, piece.stop)
            for piece in consecutive([index for index, content in enumerate(self.contents) if content is not None])
        ]

    def delivery(self) -> FetchedMessages:
        """The whole run as a delivery."""
        return FetchedMessages(
            slice_of(self.origins, slice(None)),
            self.redelivered,
            range(self.first, self.first + len(self.contents)),
            self.contents[:],
        )

    def slot(self, index: int) -> Run:
        """A copy of one slot without its size and `id_base`, which are 0."""
        return Run(
            self.first + index,
            [self.contents[index]],
            self.origin_at(index),
            self.expiry_at(index),
            self.redelivered,
            0,
            0,
            self.kind,
            arrived=part_of(self.arrived, self.first + index, self.first + index + 1),
        )

    def message(self, index: int) -> QueuedMessage:
        """The message in one slot."""
        return QueuedMessage(
            self.first + index, self.contents[index], self.origin_at(index), self.expiry_at(index), self.redelivered
        )

    def messages(self, first: int = 0, last: int | None = None) -> Iterator[QueuedMessage]:
        """The messages with the numbers `first` to `last` that are not settled; by default all."""
        start = max(0, first - self.first)
        stop = len(self.contents) if last is None else min(len(self.contents), last + 1 - self.first)
        for index in range(start, stop):
            if self.contents[index] is not None:
                yield self.message(index)


def _spread(sizes: Sizes, count: int) -> tuple[int, ...]:
    """A size for each of `count` messages."""
    return (sizes,) * count if isinstance(sizes, int) else sizes


def _may_share(expiries: Expiries, others: Expiries) -> bool:
    """Whether messages with these expiries may become one run.

    Two runs that have one time each, and different ones, stay apart: a list with a time for each message would take
    more memory than the second run does.
    """
    return isinstance(expiries, list) or isinstance(others, list) or expiries == others


def free_last(detached: list[AscendingRuns[Run]], limit: int) -> list[Run]:
    """Remove and return the last of the runs that `detach` has returned, with about `limit` messages in all."""
    freed = []
    while limit > 0 and detached:
        runs = detached[-1]
        if not runs:
            detached.pop()
            continue
        run = runs.blocks[-1].pop()
        runs.drop_empty()
        freed.append(run)
        limit -= len(run.contents)
    return freed


def insert_joined(runs: AscendingRuns[Run], run: Run) -> None:
    """Put a run where its numbers belong, joined with its neighbours as long as they are short.

    Without that, messages that come back one by one would stay one run each.
    """
    below, above = runs.neighbours(run.first)
    if below is not None and _are_joinable(below, run):
        below.join(run)
        if above is not None and _are_joinable(below, above):
            runs.remove(above)
            below.join(above)
    elif above is not None and _are_joinable(run, above):
        above.join(run)
    else:
        runs.insert(run)


def _are_joinable(run: Run, next_: Run) -> bool:
    return (
        run.first + len(run.contents) == next_.first
        and len(run.contents) + len(next_.contents) <= COALESCE_BELOW
        and run.live == len(run.contents)
        and next_.live == len(next_.contents)
        and _may_share(run.expiries, next_.expiries)
        and run.redelivered == next_.redelivered
        and run.kind == next_.kind
        and run.id_base == next_.id_base
        and have_same_fate(run.origin, next_.origin)
    )
