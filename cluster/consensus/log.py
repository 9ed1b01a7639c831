"""`RaftLog`: the entries that a node has, and how far they are written, committed and applied.

    start                applied          committed         handed         last
      |  (compacted) [----------------------|-----------------|--------------]
      snapshot                                    written <= handed

- `start` is the position at which the snapshot of the state stands. Earlier entries are gone.
- `handed` is the last entry that was given to the disk, `written` the last one that the disk has. A node answers for
  written entries only.
- `committed` is the last entry that a majority has written; `applied` the last one that was given to the state.

A leader of a later term may replace entries that are not committed. `handed` and `written` then fall back to the last
entry that both logs share.

An entry that changes the members is in force from the moment when it is appended, and no longer when it is replaced.
`members` therefore follows from the last such entry of the log, committed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...seams import seam
from .membership import RaftMembers

#: Kinds of entries: the empty first entry of a leader's term, a command for the state, a change of the members.
EMPTY, COMMAND, MEMBERS = range(3)


class Entry(NamedTuple):
    """A place in the log: its index, the term of the leader that appended it, and what it is."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    kind: int
    data: bytes


class Mark(NamedTuple):
    """The position of a snapshot: its state has every entry up to `index`; these were the members."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    members: RaftMembers


class RaftLog:
    """See the module. `entries` are what the disk has behind `start`; the changes of those up to `applied` are in its
    rows.
    """

    def __init__(self, start: Mark, entries: Sequence[Entry] = (), applied: int | None = None) -> None:
        self.start = start
        self.entries: list[Entry] = []
        #: Bytes of data of all entries.
        self.size = 0
        #: Where each set of members came into force.
        self._members: list[tuple[int, RaftMembers]] = [(start.index, start.members)]
        self.append(entries)
        self.handed = self.written = self.last_index
        self.committed = self.applied = start.index if applied is None else applied
        assert start.index <= self.applied <= self.last_index, "the disk has rows of entries that it does not have"

    @property
    def last_index(self) -> int:
        return self.start.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.start.term

    @property
    def members(self) -> RaftMembers:
        """The members in force."""
        return self._members[-1][1]

    @property
    def members_index(self) -> int:
        """The entry that brought the members in force."""
        return self._members[-1][0]

    def members_at(self, index: int) -> RaftMembers:
        """The members that were in force when the log ended at `index`."""
        return next(members for at, members in reversed(self._members) if at <= index)

    def term_at(self, index: int) -> int | None:
        """The term of an entry, or of the snapshot's last entry; None if the log has neither."""
        at = index - self.start.index
        if 0 < at <= len(self.entries):
            return self.entries[at - 1].term
        return self.start.term if at == 0 else None

    @seam("consensus: whether a log continues another one")
    def has(self, index: int, term: int) -> bool:
        """Whether the log has this entry. Two logs that share one entry share all entries before it."""
        return self.term_at(index) == term

    @seam("consensus: which log is more complete")
    def is_behind(self, index: int, term: int) -> bool:
        """Whether a log that ends with this entry has every committed entry that this log may have."""
        return (term, index) >= (self.last_term, self.last_index)

    def last_at_most(self, index: int, term: int) -> int:
        """The last entry up to `index` whose term is `term` at most; that of the snapshot if there is no other."""
        index = min(index, self.last_index)
        while index > self.start.index and self.entries[index - self.start.index - 1].term > term:
            index -= 1
        return index

    def first_of_term_at(self, index: int) -> int:
        """The first entry that the log has of the term of the entry at `index`."""
        term = self.term_at(index)
        while index - 1 > self.start.index and self.term_at(index - 1) == term:
            index -= 1
        return index

    def between(self, first: int, last: int) -> list[Entry]:
        """The entries from `first` to `last`, both included."""
        return self.entries[first - self.start.index - 1 : last - self.start.index]

    def batch(self, first: int, most_bytes: int) -> list[Entry]:
        """Entries from `first` on, of at most `most_bytes` together, but at least one if there is one."""
        batch: list[Entry] = []
        size = 0
        for entry in self.entries[first - self.start.index - 1 :]:
            size += len(entry.data)
            if batch and size > most_bytes:
                break
            batch.append(entry)
        return batch

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, the first of which follows the last one."""
        for entry in entries:
            assert entry.index == self.last_index + 1, "the log has no gaps"
            self.entries.append(entry)
            self.size += len(entry.data)
            if entry.kind == MEMBERS:
                self._members.append((entry.index, RaftMembers.unpacked(entry.data)))

    @seam("consensus: which entries a leader's entries replace")
    def merge(self, entries: Sequence[Entry]) -> None:
        """Add what a leader sent, and drop what contradicts it. Entries that are here already stay."""
        for position, entry in enumerate(entries):
            if not self.has(entry.index, entry.term):
                if entry.index <= self.last_index:
                    self._truncate(entry.index)
                self.append(entries[position:])
                return

    def _truncate(self, first: int) -> None:
        assert first > self.committed, "a committed entry would be lost"
        self.size -= _size_of(self.between(first, self.last_index))
        del self.entries[first - self.start.index - 1 :]
        while self._members[-1][0] >= first:
            self._members.pop()
        self.handed = min(self.handed, first - 1)
        self.written = min(self.written, first - 1)

    def commit(self, index: int) -> bool:
        """Note that a majority has the entries up to `index`; return whether more is committed now than before."""
        if index <= self.committed:
            return False
        assert index <= self.last_index, "the disk has lost entries for which this node had answered"
        self.committed = index
        return True

    def compactable(self, most_entries: int, most_bytes: int) -> int:
        """The entry up to which the log may be compacted, so that it keeps at most so many of the applied entries, with
        at most so many bytes together.
        """
        least = max(self.start.index, self.applied - most_entries)
        index, size = self.applied, 0
        while index > least:
            size += len(self.entries[index - self.start.index - 1].data)
            if size > most_bytes:
                break
            index -= 1
        return index

    def wrote(self, index: int, term: int) -> None:
        """Note that the disk has every entry up to this one, unless the log has replaced it meanwhile."""
        if self.has(index, term):
            self.written = max(self.written, index)

    def compact(self, index: int) -> None:
        """Forget the entries up to `index`, which the disk has in the form of applied rows."""
        assert index <= self.applied, "an entry that is not applied would be lost"
        term = self.term_at(index)
        assert term is not None
        mark = Mark(index, term, self.members_at(index))
        later = [(at, members) for at, members in self._members if at > index]
        self.size -= _size_of(self.between(self.start.index + 1, index))
        del self.entries[: index - self.start.index]
        self.start = mark
        self._members = [(index, mark.members), *later]

    def restore(self, mark: Mark) -> None:
        """Forget everything: the state is that of a snapshot."""
        self.start = mark
        self.entries.clear()
        self.size = 0
        self._members = [(mark.index, mark.members)]
        self.handed = self.written = self.applied = self.committed = mark.index


def _size_of(entries: Sequence[Entry]) -> int:
    return sum([len(entry.data) for entry in entries])
