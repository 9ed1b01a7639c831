"""`Activity`: which queues, channels and connections have had a turn since statistics were read.

A node may have ten thousand queues of which ten are busy. So no process asks all of them now and then. Each process
notes itself at the end of a turn, once between two readings, and a reading looks at those alone:

    activity = context.activity
    if activity.round != self.round:
        self.round = activity.round
        activity.note(self.queue_id)

While nobody reads statistics, a turn costs that comparison. A reader (`ActivityFeed`) calls the `statistics` of a
process directly, between two turns, as a view does: a message would be a turn of its own, which would count as
activity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from ...parted_table import PartedTable

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ..contracts.info_items import InfoItems

#: Ids that a reader passes at a time at most, whether they have to be read or not.
PASSED = 1_000

Kind = Literal["queue", "channel", "connection"]


class HasStatistics(Protocol):
    """A process that statistics show."""

    def statistics(self) -> InfoItems: ...


class Activity:
    """See the module. `members` are the processes that run, by kind and id; each enters and leaves by itself."""

    __slots__ = ("_changed", "_feeds", "_rounds", "members", "round")

    def __init__(self) -> None:
        self.members: PartedTable[str, tuple[Kind, HasStatistics]] = PartedTable()
        #: Changes with each reading; 0 while nobody reads.
        self.round = 0
        self._rounds = 0
        self._changed: list[str] = []
        self._feeds: list[ActivityFeed] = []

    def enter(self, process_id: str, kind: Kind, process: HasStatistics) -> None:
        self.members[process_id] = kind, process
        for feed in self._feeds:
            feed.again.append(process_id)

    def leave(self, process_id: str) -> None:
        """Note that the process ends. Does nothing for one that has not entered."""
        found = self.members.pop(process_id, None)
        if found is not None:
            for feed in self._feeds:
                feed.ended.append((found[0], process_id))

    def note(self, process_id: str) -> None:
        if self.round:
            self._changed.append(process_id)

    def open(self) -> ActivityFeed:
        """Begin to read; the first `take` of the feed has all processes."""
        feed = ActivityFeed(self)
        self._feeds.append(feed)
        self._next_round()
        return feed

    def close(self, feed: ActivityFeed) -> None:
        self._feeds.remove(feed)
        if not self._feeds:
            self.round = 0
            self._changed = []

    def _next_round(self) -> None:
        self._rounds += 1
        self.round = self._rounds
        changed, self._changed = self._changed, []
        # Each feed has a list of its own, because it empties the list while it reads.
        for feed in self._feeds:
            feed.rounds.append(changed.copy())


class ActivityFeed:
    """One reader of statistics. It must be closed, or what it has not taken piles up.

    A client may have 65,535 channels that all had a turn. So a feed keeps the lists of ids of the rounds as they are,
    and finds those that occur twice only while they are read.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        #: By round: the ids of processes that had a turn.
        self.rounds: list[list[str]] = [list(activity.members)]
        #: The ids of other processes to read: those that are new, or were blocked lately.
        self.again: list[str] = []
        #: Kind and id of those that have ended.
        self.ended: list[tuple[Kind, str]] = []

    def take(self, most: int) -> tuple[Iterator[list[str]], list[tuple[Kind, str]]]:
        """The ids of the processes that may have changed since the last call, `most` at a time, and those that have
        ended.
        """
        self._activity._next_round()
        rounds, self.rounds = [self.again, *self.rounds], []
        self.again, ended, self.ended = [], self.ended, []
        return _parts(rounds, most, self._activity.members), ended

    def read(self, process_id: str) -> tuple[Kind, InfoItems] | None:
        """The statistics of one process; None if it has ended. One that was blocked lately is read again next time."""
        found = self._activity.members.get(process_id)
        if found is None:
            return None
        items = found[1].statistics()
        if items.get("state") == "flow" or items.get("blocked_share"):
            # A block is over, and its share of the last seconds falls, without a turn of the process.
            self.again.append(process_id)
        return found[0], items

    def close(self) -> None:
        self._activity.close(self)


def _parts(rounds: list[list[str]], most: int, members: Container[str]) -> Iterator[list[str]]:
    """The ids of all rounds that are still in `members`, each once, up to `most` at a time.

    A part may be empty, because the reader must also pause between ids that there is no need to read. The rounds lose
    what was passed: to free 65,535 ids at once takes some milliseconds.
    """
    seen: set[str] = set()
    part: list[str] = []
    passed = 0
    for ids in rounds:
        ids.reverse()
        while ids:
            each = ids.pop()
            passed += 1
            if each not in seen and each in members:
                seen.add(each)
                part.append(each)
            if len(part) == most or passed == PASSED:
                yield part
                part, passed = [], 0
    yield part
    while seen:
        for _ in range(min(len(seen), PASSED)):
            seen.pop()
        yield []
