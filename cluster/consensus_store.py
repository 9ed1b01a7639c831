"""How a node's part in the consensus is read from the disk, and how a `Ready` is written there.

Entries, ballot, the index of the last applied entry and the rows that applied commands changed are written in one
transaction of the metadata store (CL-21). So the rows on the disk always match that index, and a crash loses all of a
`Ready` or none of it.
"""

from __future__ import annotations

from ..store.data_dir.log_tables import LogFound, LogStart, LogWrite
from .consensus.core import Raft, Ready
from .consensus.election import Ballot
from .consensus.log import Entry, Mark, RaftLog
from .consensus.membership import RaftMembers


def first_write(members: RaftMembers) -> LogWrite:
    """The write that begins the log of a node: with these members, or with none if it is to join a cluster."""
    return LogWrite(ballot=(0, None), applied=0, start=LogStart(0, 0, members.packed()))


def found_on_disk(found: LogFound) -> tuple[Ballot, RaftLog]:
    """Ballot and log of a node that starts again."""
    assert found.start is not None, "the log was never begun"
    start = Mark(found.start.index, found.start.term, RaftMembers.unpacked(found.start.members))
    return Ballot(*found.ballot), RaftLog(start, [Entry(*entry) for entry in found.entries], found.applied)


def write_of(ready: Ready, compacted: Mark | None = None) -> LogWrite:
    """What a `Ready` writes besides rows. `compacted` is the new start of the log, if entries are not needed any more.

    If the `Ready` has a snapshot, the rows that are written with it are all rows of that snapshot's state, and those of
    the commands in `ready.committed`.
    """
    applied = ready.snapshot.mark.index if ready.snapshot is not None else None
    if ready.committed:
        applied = ready.committed[-1].index
    return LogWrite(
        restored=None if ready.snapshot is None else _start(ready.snapshot.mark),
        ballot=ready.ballot,
        entries=ready.entries,
        applied=applied,
        # A snapshot contains more entries than could be compacted before it came, so the log begins behind it.
        start=None if compacted is None or ready.snapshot is not None else _start(compacted),
    )


def compaction(raft: Raft, most_entries: int, most_bytes: int, needed_from: int | None = None) -> Mark | None:
    """Forget all applied entries but the last `most_entries`, and of these all but the last `most_bytes`, and none
    behind `needed_from`; return the new start for the next write, None if there is none.

    Only what the disk has applied may be forgotten, so this is called right after `advance`.
    """
    index = raft.log.compactable(most_entries, most_bytes)
    if needed_from is not None:
        index = min(index, needed_from)
    if index <= raft.log.start.index:
        return None
    raft.compact(index)
    return raft.log.start


def _start(mark: Mark) -> LogStart:
    return LogStart(mark.index, mark.term, mark.members.packed())
