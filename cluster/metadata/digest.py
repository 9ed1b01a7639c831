"""Digests: how nodes detect that their states differ, which no fault of a network or a disk may cause (CL-27).

Each node computes a digest of all its rows as of each entry whose index is a multiple of `EVERY`. It goes on with the
next entries meanwhile, because a digest takes 7 µs a row. The leader then proposes a command with its own digest. A
node whose digest for that entry differs stops, and its files stay. The digest does not depend on the order of the rows,
which may differ between nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from ...runtime.process import Process
from ...store.data_dir.metadata_store import Change

#: Entries from one digest to the next.
EVERY = 10_000
#: How many of its latest digests a node keeps.
KEPT = 4

#: Rows that are digested in one turn.
ROWS_AT_A_TIME = 500

#: Bytes of a digest.
SIZE = 16


class Diverged(Exception):
    """The state of this node is not that of the leader. The text is for operators."""


class CompareDigest(NamedTuple):
    """The leader's state had this digest after the entry at `index`."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    digest: bytes


async def digest_of(process: Process, rows: Iterable[Change]) -> bytes:
    """The digest of these rows."""
    waiting = iter(rows)
    total = 0
    while some := list(islice(waiting, ROWS_AT_A_TIME)):
        total += sum(int.from_bytes(_digest_of_row(row), "big") for row in some)
        await process.next_turn()
    return (total % (1 << 8 * SIZE)).to_bytes(SIZE, "big")


def _digest_of_row(row: Change) -> bytes:
    if row.fields is not None and "creator" in row.fields:
        # Nodes of earlier versions do not keep the creator of an exchange.
        row = row._replace(fields={name: value for name, value in row.fields.items() if name != "creator"})
    packed: bytes = msgpack.packb(list(row), unicode_errors="surrogateescape")
    return blake2b(packed, digest_size=SIZE).digest()


class Digests:
    """The latest digests of this node, by the index of the entry after which each was computed."""

    def __init__(self) -> None:
        self._taken: dict[int, bytes] = {}
        #: By the entries whose digests are being computed: the command that has come meanwhile.
        self._awaited: dict[int, CompareDigest | None] = {}

    def begins(self, index: int) -> None:
        """Note that the digest as of this entry is being computed."""
        self._awaited[index] = None

    def took(self, index: int, digest: bytes) -> None:
        """Note the digest as of this entry. Raises Diverged like `compare`."""
        self._taken[index] = digest
        while len(self._taken) > KEPT:
            del self._taken[next(iter(self._taken))]
        command = self._awaited.pop(index, None)
        if command is not None:
            self.compare(command)

    def compare(self, command: CompareDigest) -> None:
        """Raise Diverged if this node has another digest for that entry, now or when it is computed. Does nothing if it
        has none.
        """
        own = self._taken.get(command.index)
        if own is None and command.index in self._awaited:
            self._awaited[command.index] = command
        if own is not None and own != command.digest:
            raise Diverged(
                f"the metadata of this node differs from that of the leader after entry {command.index}: its digest is "
                f"{own.hex()}, the leader's {command.digest.hex()}. The node stops, and its files stay for an "
                "examination. To use it again, remove it with `warren forget_cluster_node` on another node, and let it "
                "join with an empty data directory"
            )
