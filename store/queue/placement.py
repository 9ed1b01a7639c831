"""Where the messages of a run are: in memory, in the queue index, in a message store (section 4.2 and 4.4).

`Run.kind` says it, as a sum of:

    TO_STORE   the bodies belong in a message store, being too large for the index; decided once, at publish
    IN_STORE   they are there
    INDEXED    the index has an entry for each (and the body, unless TO_STORE)
    ABSENT     the run's slots are stubs: the bodies are not in memory

so that of RabbitMQ's states alpha is anything not ABSENT in q1 or q4, beta is without INDEXED, gamma with it. A message that is not TO_STORE keeps its body in memory until it
becomes part of delta.

A message's id in a store (`message_ids`) is told by its stub. While the body is in memory the number of the message tells it, and `Run.id_base` if other queues have the message
as well. Persistent bodies go to the persistent store, others to the transient one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from ..index.queue_index import QueueIndex
from ..index.segment_jobs import ReleaseJob
from ..messages.message import Sizes
from ..messages.message_ids import as_bytes, ids_from, is_shared, own_base
from ..messages.records import make_stub, make_stubs, stub_id
from ..messages.run import Run

TO_STORE, IN_STORE, INDEXED, ABSENT = 1, 2, 4, 8
EMBED_BELOW = 4096


class Wanted(NamedTuple):
    """Ids of bodies in the persistent and in the transient store."""

    persistent: list[bytes]
    transient: list[bytes]


class Bodies(Protocol):
    """The part of a message store (`store_client.StoreClient`, or `bodies.StoreBodies` in one thread) that a queue uses."""

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int: ...

    def remove(self, message_ids: Iterable[bytes]) -> None: ...

    def remove_between(self, first: bytes, last: bytes, keep: Container[bytes]) -> None: ...

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]: ...

    def contains(self, message_id: bytes) -> bool: ...


class Placement:
    """Moves the messages of one queue between memory, index and stores. `store_position` is the persistent store's after the last write."""

    def __init__(
        self, queue: int, index: QueueIndex, persistent: Bodies, transient: Bodies, embed_below: int = EMBED_BELOW
    ) -> None:
        self._own = own_base(queue)
        self.index = index
        self._persistent = persistent
        self._transient = transient
        self._embed_below = embed_below
        self.store_position = 0
        self.has_bodies = False
        """Some message may have a body in a store."""
        self.has_shared = False
        """Some may be there under an id that other queues refer to as well."""
        self._loaded: dict[bytes, bytes | None] = {}
        self.reads = self.writes = 0

    def split(self, run: Run, shared: int = 0) -> Iterator[Run]:
        """The run as pieces of one target each (`>=` is deliberate: a limit of 0 embeds nothing). `shared`: the id of its first message, if other queues have the same messages."""
        limit = self._embed_below
        if max(map(len, run.contents)) < limit:
            yield run  # content is larger than body and properties together
            return
        most = limit - len(run.origin.props)
        sizes = run.measured()
        if isinstance(sizes, int):
            if sizes >= most:
                run.kind = TO_STORE
                run.id_base = shared and shared - run.first
            yield run
            return
        start = 0
        for is_small, group in groupby(size < most for size in sizes):
            stop = start + len(list(group))
            piece = run.part(start, stop)
            if not is_small:
                piece.kind = TO_STORE
                piece.id_base = shared and shared - run.first
            yield piece
            start = stop

    def _store(self, run: Run) -> Bodies:
        return self._persistent if run.origin.persistent else self._transient

    def ids(self, run: Run) -> list[bytes]:
        """Under which its bodies are in a store, or would be; without the settled ones."""
        if run.kind & ABSENT:
            return [stub_id(stub) for stub in run.contents if stub is not None]
        base = run.id_base or self._own
        if run.live == len(run.contents):
            return ids_from(base + run.first, run.live)
        return [as_bytes(base + number) for number, slot in enumerate(run.contents, run.first) if slot is not None]

    def _stubs(self, run: Run) -> list[Any]:
        """What stands for its bodies; None for those that are settled."""
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
        """Into the store, if it belongs there and is not. Settled slots are passed over."""
        if run.kind & (TO_STORE | IN_STORE) != TO_STORE:
            return
        messages = list(zip(self.ids(run), [slot for slot in run.contents if slot is not None], strict=True))
        position = self._store(run).write(messages)
        self.writes += len(messages)
        if run.origin.persistent:
            self.store_position = position
        self.has_bodies = True
        self.has_shared = self.has_shared or bool(run.id_base)
        run.kind |= IN_STORE

    def write_index(self, run: Run, is_journaled: bool = True) -> int:
        """An entry for each message, if there is none; returns the journal's position, 0 if it was not told."""
        if run.kind & INDEXED:
            return 0
        is_stored = bool(run.kind & TO_STORE)
        entries = run
        if is_stored and not run.kind & ABSENT:
            assert run.kind & IN_STORE, "an index entry must not come before its body"
            entries = Run(
                run.first, self._stubs(run), run.origin, run.expiry, run.redelivered, run.body_bytes, run.sizes
            )
        run.kind |= INDEXED
        if not is_stored:
            self.writes += len(run.contents)
        if run.origin.persistent and is_journaled:
            return self.index.publish(entries, is_stored)
        self.index.page(entries, is_stored)
        return 0

    def trim(self, run: Run) -> None:
        """Let the bodies go from memory, if they can be read from a store."""
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
        self.reads += len(ids)
        loaded = self._loaded
        if all(message_id in loaded for message_id in ids):
            return [loaded[message_id] for message_id in ids]
        return self._store(run).read(ids)

    def readable(self, run: Run) -> int:
        """How many messages at the start of a run can be read without the disk."""
        if not run.kind & ABSENT:
            return len(run.contents)
        if not self._loaded:
            return 0
        for index, message_id in enumerate(self.ids(run)):
            if message_id not in self._loaded:
                return index
        return len(run.contents)

    def wanted(self, runs: Iterable[Run], most_bytes: int) -> Wanted:
        """The ids of bodies of `runs` that must be read from a store, up to `most_bytes` together, but for one."""
        wanted = Wanted([], [])
        total = 0
        for run in runs:
            if total >= most_bytes:
                break
            total += run.body_bytes if run.kind & ABSENT else 0
            if run.kind & ABSENT:
                ids = wanted.persistent if run.origin.persistent else wanted.transient
                each = max(1, run.body_bytes // max(1, run.live))
                left = max(1, 1 + (most_bytes - total + run.body_bytes) // each)
                ids += self.ids(run)[:left]
        return wanted

    def loaded(self, wanted: Wanted, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]) -> None:
        """The bodies of `wanted` were read, None for those that are lost. They are kept until the next are."""
        self._loaded = dict(zip([*wanted.persistent, *wanted.transient], [*persistent, *transient], strict=True))

    def lost_in(self, run: Run) -> list[int]:
        """The slots of which the body was looked for in vain by the last load."""
        if not run.kind & ABSENT or None not in self._loaded.values():
            return []
        return [index for index, message_id in enumerate(self.ids(run)) if self._loaded.get(message_id, b"") is None]

    def forget(self, runs: Iterable[Run]) -> None:
        """Messages left the queue: out of the index and the stores. Runs without holes."""
        for run in runs:
            if run.kind & INDEXED:
                self.index.ack(range(run.first, run.end), run.origin.persistent)
            if run.kind & IN_STORE:
                ids = self.ids(run)
                if self.index.has_lost_entries:
                    # What damage has brought back was given up before. The other queues' references must not pay for it; the next start counts.
                    ids = [message_id for message_id in ids if not is_shared(message_id)]
                self._store(run).remove(ids)

    def forget_shared(self, runs: Iterable[Run]) -> None:
        """What of their bodies `forget_between` does not reach is wanted no more. Settled slots are passed over."""
        if self.index.has_lost_entries:
            return
        for run in runs:
            shared = (
                [message_id for message_id in self.ids(run) if is_shared(message_id)] if run.kind & IN_STORE else []
            )
            if shared:
                self._store(run).remove(shared)

    def released(self, release: ReleaseJob) -> None:
        """The bodies that it has found are wanted no more."""
        if not self.index.has_lost_entries:
            self._persistent.remove(release.persistent)
            self._transient.remove(release.transient)

    def forget_between(self, start: int, stop: int, keep: Iterable[int] = ()) -> None:
        """The bodies that the messages `[start, stop)` but those to `keep` have under their own ids are wanted no more; which these are, the stores know."""
        if self.has_bodies and start < stop:
            first, last = as_bytes(self._own + start), as_bytes(self._own + stop - 1)
            kept = frozenset(as_bytes(self._own + number) for number in keep)
            for store in (self._persistent, self._transient):
                store.remove_between(first, last, kept)


def recovered(run: Run, is_stored: bool) -> Run:
    """A run read from the index, with its kind."""
    run.kind = INDEXED | (TO_STORE | IN_STORE | ABSENT if is_stored else 0)
    return run
