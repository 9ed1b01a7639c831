"""Where the messages of a run are: in memory, in the queue index, in a message store (section 4.2 and 4.4).

`Run.kind` says it, as a sum of:

    TO_STORE   the bodies belong in a message store, being too large for the index; decided once, at publish
    IN_STORE   they are there
    INDEXED    the index has an entry for each (and the body, unless TO_STORE)
    ABSENT     the run's slots are stubs: the bodies are not in memory

so that of RabbitMQ's states alpha is anything not ABSENT in q1 or q4, beta is without INDEXED, gamma with it. A message that is not TO_STORE keeps its body in memory until it
becomes part of delta.

A message's id is the queue's id and its number. Persistent bodies go to the persistent store, others to the transient one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from .message import Sizes
from .queue_index import QueueIndex
from .records import make_stub, stub_id
from .run import Run

TO_STORE, IN_STORE, INDEXED, ABSENT = 1, 2, 4, 8
EMBED_BELOW = 4096


class Bodies(Protocol):
    """The part of a message store (`bodies.StoreBodies`) that a queue uses."""

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> int: ...

    def remove(self, message_ids: Iterable[bytes]) -> None: ...

    def read(self, message_ids: Sequence[bytes]) -> list[bytes | None]: ...

    def contains(self, message_id: bytes) -> bool: ...


class Placement:
    """Moves the messages of one queue between memory, index and stores. `store_position` is the persistent store's after the last write."""

    def __init__(self, queue: int, index: QueueIndex, persistent: Bodies, transient: Bodies, embed_below: int = EMBED_BELOW) -> None:
        self._prefix = queue.to_bytes(8, 'big')
        self.index = index
        self._persistent = persistent
        self._transient = transient
        self._embed_below = embed_below
        self.store_position = 0
        self.has_bodies = False
        """Some message may have a body in a store."""
        self.reads = self.writes = 0

    def split(self, run: Run) -> Iterator[Run]:
        """The run as pieces of one target each (`>=` is deliberate: a limit of 0 embeds nothing)."""
        limit = self._embed_below
        if max(map(len, run.contents)) < limit:
            yield run  # content is larger than body and properties together
            return
        most = limit - len(run.origin.props)
        sizes = run.measured()
        if isinstance(sizes, int):
            run.kind = 0 if sizes < most else TO_STORE
            yield run
            return
        start = 0
        for is_small, group in groupby(size < most for size in sizes):
            stop = start + len(list(group))
            piece = run.part(start, stop)
            piece.kind = 0 if is_small else TO_STORE
            yield piece
            start = stop

    def _store(self, run: Run) -> Bodies:
        return self._persistent if run.origin.persistent else self._transient

    def _ids(self, run: Run) -> list[bytes]:
        if run.kind & ABSENT:
            return [stub_id(stub) for stub in run.contents if stub is not None]
        return [self._prefix + (run.first + index).to_bytes(8, 'big') for index, slot in enumerate(run.contents) if slot is not None]

    def _stubs(self, run: Run) -> list[bytes | None]:
        sizes: Sizes = run.measured() if run.live == len(run.contents) else run.sizes  # type: ignore[assignment]
        prefix = self._prefix
        return [None if slot is None else make_stub(prefix + (run.first + index).to_bytes(8, 'big'), sizes if isinstance(sizes, int) else sizes[index])
                for index, slot in enumerate(run.contents)]

    def write_body(self, run: Run) -> None:
        """Into the store, if it belongs there and is not. Settled slots are passed over."""
        if run.kind & (TO_STORE | IN_STORE) != TO_STORE:
            return
        messages = list(zip(self._ids(run), [slot for slot in run.contents if slot is not None], strict=True))
        position = self._store(run).write(messages)
        self.writes += len(messages)
        if run.origin.persistent:
            self.store_position = position
        self.has_bodies = True
        run.kind |= IN_STORE

    def write_index(self, run: Run) -> int:
        """An entry for each message, if there is none; returns the journal's position, 0 if it was not told."""
        if run.kind & INDEXED:
            return 0
        is_stored = bool(run.kind & TO_STORE)
        entries = run
        if is_stored and not run.kind & ABSENT:
            assert run.kind & IN_STORE, 'an index entry must not come before its body'
            entries = Run(run.first, self._stubs(run), run.origin, run.expiry, run.redelivered, run.body_bytes, run.sizes)
        run.kind |= INDEXED
        if not is_stored:
            self.writes += len(run.contents)
        if run.origin.persistent:
            return self.index.publish(entries, is_stored)
        self.index.page(entries, is_stored)
        return 0

    def trim(self, run: Run) -> None:
        """Let the bodies go from memory, if they can be read from a store."""
        self.write_body(run)
        if run.kind & TO_STORE and not run.kind & ABSENT:
            run.contents = self._stubs(run)
            run.kind |= ABSENT

    def read(self, run: Run) -> list[bytes | None]:
        """The contents of a run without holes; None for a body that is lost."""
        if not run.kind & ABSENT:
            return run.contents
        self.reads += len(run.contents)
        return self._store(run).read(self._ids(run))

    def load(self, run: Run) -> None:
        """Bring the bodies of a run into memory; a lost one stays a stub's worth of nothing, and is dropped when handed out."""
        if run.kind & ABSENT:
            contents = self.read(run)
            if None not in contents:
                run.contents = contents
                run.kind &= ~ABSENT

    def forget(self, runs: Iterable[Run]) -> None:
        """Messages left the queue: out of the index and the stores. Runs without holes."""
        for run in runs:
            if run.kind & INDEXED:
                self.index.ack(range(run.first, run.end), run.origin.persistent)
            if run.kind & IN_STORE:
                self._store(run).remove(self._ids(run))

    def forget_stored(self, run: Run) -> None:
        """A run of stubs that the index is about to forget by itself."""
        self._store(run).remove(self._ids(run))


def recovered(run: Run, is_stored: bool) -> Run:
    """A run read from the index, with its kind."""
    run.kind = INDEXED | (TO_STORE | IN_STORE | ABSENT if is_stored else 0)
    return run
