"""Moves the messages of a queue between memory, the queue index and the message stores (queue-and-store section 4.2,
4.4).

`Run.kind` says where the messages of a run are (`TO_STORE`, `IN_STORE`, `INDEXED` and `ABSENT` in `messages.run`).

In RabbitMQ's terms a message in q1 or q4 that is not ABSENT is alpha; one without its body is beta, or gamma if it is
INDEXED. A message that is not TO_STORE keeps its body in memory until it becomes part of delta.

A stub carries the id under which the body is in a store (`message_ids`). While the body is in memory, the id follows
from the number of the message, or from `Run.id_base` if other queues have the message too. Persistent bodies go to
the persistent store, others to the transient one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from ...index.queue_index import QueueIndex
from ...index.segment_jobs import ReleaseJob
from ...messages.message import Sizes, body_size, properties_size
from ...messages.message_ids import as_bytes, ids_from, is_shared, own_base
from ...messages.pending_runs import Piece
from ...messages.records import make_stub, make_stubs, stub_id
from ...messages.run import ABSENT, IN_STORE, INDEXED, TO_STORE, Run

#: Messages with fewer bytes of body and properties are embedded in the index.
EMBED_BELOW = 4096
#: A message that follows an embedded one is embedded up to this many times the limit. Where sizes vary about the limit,
#: every second message would otherwise be a run of its own, which costs three times as much as a long run.
NEIGHBOUR_FACTOR = 2


class BodyIds(NamedTuple):
    """The ids of bodies to read from the persistent and from the transient store."""

    persistent: list[bytes]
    transient: list[bytes]


class Bodies(Protocol):
    """The part of a message store that a queue uses; see `store_client.StoreClient`."""

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int: ...

    def remove(self, message_ids: Iterable[bytes]) -> None: ...

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None: ...

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]: ...


#: The bodies of queues that have read none from a store. Every empty dict takes 64 bytes.
_NONE_LOADED: Mapping[bytes, bytes | None] = {}


class Placement:
    """The places of one queue's messages.

    `store_position` is the position of the last write to the persistent store.
    """

    __slots__ = (
        "_embed_below",
        "_has_embedded_last",
        "_loaded",
        "_own",
        "_persistent",
        "_transient",
        "has_bodies",
        "has_shared",
        "index",
        "store_position",
    )

    def __init__(
        self, queue: int, index: QueueIndex, persistent: Bodies, transient: Bodies, embed_below: int = EMBED_BELOW
    ) -> None:
        self._own = own_base(queue)
        self.index = index
        self._persistent = persistent
        self._transient = transient
        self._embed_below = embed_below
        self.store_position = 0
        #: Whether a message store may have bodies of this queue. If not, none is asked to remove any.
        self.has_bodies = False
        #: Whether a store may have bodies of this queue to which other queues refer as well.
        self.has_shared = False
        self._has_embedded_last = False
        self._loaded = _NONE_LOADED

    def split(self, run: Run, shared: int = 0, is_stored: bool = False) -> Iterator[Run]:
        """Cut a run into pieces that are all embedded or all for the store. A limit of 0 embeds nothing.

        A message that no other queue has and that follows an embedded one is embedded up to `NEIGHBOUR_FACTOR` times
        the limit.

        `shared` is the id of the first message if other queues have the same messages, else 0. `is_stored`: the store
        has the large bodies already, with a reference for this queue.
        """
        limit = self._embed_below
        longest = max(map(len, run.contents))
        if longest < limit:  # a content is longer than its body and properties together
            self._has_embedded_last = True
            yield run
            return
        if longest < limit * NEIGHBOUR_FACTOR and not shared and not is_stored:
            if self._has_embedded_last or min(map(len, run.contents)) < limit:
                self._has_embedded_last = True
                yield run
                return
        sizes = run.measured()
        if (sizes if isinstance(sizes, int) else min(sizes)) >= limit:
            self._has_embedded_last = False
            run.id_base = shared and shared - run.first
            self._for_store(run, is_stored)
            yield run
            return
        start = 0
        for is_small, group in groupby(body_size(slot) + properties_size(slot) < limit for slot in run.contents):
            stop = start + len(list(group))
            piece = run.part(start, stop)
            if not is_small:
                piece.id_base = shared and shared - run.first
                self._for_store(piece, is_stored)
            self._has_embedded_last = is_small
            yield piece
            start = stop

    def _for_store(self, run: Run, is_stored: bool) -> None:
        run.kind = TO_STORE
        if is_stored:
            run.kind |= IN_STORE
            self.has_bodies = self.has_shared = True

    def _store(self, run: Run) -> Bodies:
        return self._persistent if run.origin.persistent else self._transient

    def ids(self, run: Run) -> list[bytes]:
        """The ids under which the bodies of a run are in a store, or would be; without those of settled messages."""
        if run.kind & ABSENT:
            return [stub_id(stub) for stub in run.contents if stub is not None]
        base = run.id_base or self._own
        if run.live == len(run.contents):
            return ids_from(base + run.first, run.live)
        return [as_bytes(base + number) for number, slot in enumerate(run.contents, run.first) if slot is not None]

    def _stubs(self, run: Run) -> list[Any]:
        """A stub for each body; None for settled messages."""
        if run.live == len(run.contents):
            return make_stubs(self.ids(run), run.measured())
        sizes: Sizes = run.sizes  # type: ignore[assignment]
        base = (run.id_base or self._own) + run.first
        return [
            None
            if slot is None
            else make_stub(as_bytes(base + index), sizes if isinstance(sizes, int) else sizes[index])
            for index, slot in enumerate(run.contents)
        ]

    def write_body(self, run: Run) -> None:
        """Write the bodies to the store, if they belong there and are not there yet. Settled messages are skipped."""
        if run.kind & (TO_STORE | IN_STORE) != TO_STORE:
            return
        messages = list(zip(self.ids(run), [slot for slot in run.contents if slot is not None], strict=True))
        position = self._store(run).write(messages)
        if run.origin.persistent:
            self.store_position = position
        self.has_bodies = True
        self.has_shared = self.has_shared or bool(run.id_base)
        run.kind |= IN_STORE

    def write_index(self, run: Run, is_journaled: bool = True) -> int:
        """Write an index entry for each message, if there is none.

        Returns the position in the journal, 0 if nothing was written to it.
        """
        if run.kind & INDEXED:
            return 0
        is_stored = bool(run.kind & TO_STORE)
        entries = run
        if is_stored and not run.kind & ABSENT:
            assert run.kind & IN_STORE, "an index entry must not come before its body"
            entries = Run(
                run.first,
                self._stubs(run),
                run.origins,
                run.expiries,
                run.redelivered,
                run.body_bytes,
                run.sizes,
                arrived=run.arrived,
            )
        run.kind |= INDEXED
        if run.origin.persistent and is_journaled:
            return self.index.publish(entries, is_stored)
        self.index.page(entries, is_stored)
        return 0

    def trim(self, run: Run) -> None:
        """Take the bodies out of memory, if a store can give them back."""
        self.write_body(run)
        if run.kind & TO_STORE and not run.kind & ABSENT:
            run.contents = self._stubs(run)
            run.kind |= ABSENT
            run.id_base = 0

    def read(self, run: Run) -> list[bytes | None]:
        """The contents of a run without holes; None for a body that is lost."""
        if not run.kind & ABSENT:
            return run.contents
        ids = self.ids(run)
        loaded = self._loaded
        if all(message_id in loaded for message_id in ids):
            return [loaded[message_id] for message_id in ids]
        return self._store(run).read(ids)

    def readable(self, run: Run) -> int:
        """How many messages at the start of a run are in memory."""
        if not run.kind & ABSENT:
            return len(run.contents)
        if not self._loaded:
            return 0
        for index, message_id in enumerate(self.ids(run)):
            if message_id not in self._loaded:
                return index
        return len(run.contents)

    def missing_bodies(self, runs: Iterable[Run], most_bytes: int) -> BodyIds:
        """The ids of bodies of `runs` that must be read from a store: up to `most_bytes`, but at least one body."""
        missing = BodyIds([], [])
        total = 0
        for run in runs:
            if total >= most_bytes:
                break
            total += run.body_bytes if run.kind & ABSENT else 0
            if run.kind & ABSENT:
                ids = missing.persistent if run.origin.persistent else missing.transient
                each = max(1, run.body_bytes // max(1, run.live))
                left = max(1, 1 + (most_bytes - total + run.body_bytes) // each)
                ids += self.ids(run)[:left]
        return missing

    def loaded(self, ids: BodyIds, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]) -> None:
        """Keep the bodies of `ids`, until the next call. None stands for a body that is lost."""
        self._loaded = dict(zip([*ids.persistent, *ids.transient], [*persistent, *transient], strict=True))

    def lost_in(self, run: Run) -> list[int]:
        """The positions in the run of messages whose bodies the store did not have when they were last read."""
        if not run.kind & ABSENT or None not in self._loaded.values():
            return []
        return [index for index, message_id in enumerate(self.ids(run)) if self._loaded.get(message_id, b"") is None]

    def forget(self, runs: Iterable[Run], is_recorded: bool = False) -> None:
        """Remove messages that have left the queue from the index and the stores. The runs have no holes.

        `is_recorded`: the journal already has a record of their removal.
        """
        for run in runs:
            if run.kind & INDEXED:
                self.index.ack(range(run.first, run.end), run.origin.persistent and not is_recorded)
            if run.kind & IN_STORE:
                self._remove(run, self.ids(run))

    def forget_bodies(self, pieces: Iterable[Piece]) -> None:
        """Remove the references that pending messages have to bodies in the stores. The pieces have no holes."""
        for run, piece, _ in pieces:
            if run.kind & IN_STORE:
                if run.kind & ABSENT:
                    ids = [stub_id(stub) for stub in run.contents[piece]]
                else:
                    base = (run.id_base or self._own) + run.first
                    ids = [as_bytes(base + index) for index in range(piece.start, piece.stop, piece.step)]
                self._remove(run, ids)

    def _remove(self, run: Run, ids: list[bytes]) -> None:
        if self.index.has_lost_entries:
            # Damage can bring back messages whose references were removed before. Removing a reference twice would
            # remove that of another queue, so shared bodies stay until the next start recounts.
            ids = [message_id for message_id in ids if not is_shared(message_id)]
        self._store(run).remove(ids)

    def forget_shared(self, runs: Iterable[Run]) -> None:
        """Remove the references to shared bodies, which `forget_between` does not reach.

        Settled messages are skipped.
        """
        if self.index.has_lost_entries:
            return
        for run in runs:
            shared = (
                [message_id for message_id in self.ids(run) if is_shared(message_id)] if run.kind & IN_STORE else []
            )
            if shared:
                self._store(run).remove(shared)

    def released(self, release: ReleaseJob) -> None:
        """Remove the references to the bodies that a release has found."""
        if not self.index.has_lost_entries:
            self._persistent.remove(release.persistent)
            self._transient.remove(release.transient)

    def forget_between(self, start: int, stop: int, keep: Iterable[int] = ()) -> None:
        """Remove the bodies that messages `[start, stop)` have under their own ids, except those of `keep`.

        The stores find out which bodies exist, so that no list of all numbers is made.
        """
        if self.has_bodies and start < stop:
            first, last = as_bytes(self._own + start), as_bytes(self._own + stop - 1)
            kept = frozenset(as_bytes(self._own + number) for number in keep)
            for store in (self._persistent, self._transient):
                store.remove_between(first, last, kept)


def recovered(run: Run, is_stored: bool) -> Run:
    """Set the kind of a run that was read from the index."""
    run.kind = INDEXED | (TO_STORE | IN_STORE | ABSENT if is_stored else 0)
    return run
