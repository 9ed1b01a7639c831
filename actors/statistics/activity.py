"""`Activity`: which queues, channels and connections have had a turn since statistics were read.

A node may have ten thousand queues of which ten are busy. So nobody asks all of them now and then. Each process notes
itself at the end of a turn, once between two readings, and a reading looks at those alone:

    activity = context.activity
    if activity.round != self.round:
        self.round = activity.round
        activity.note(self.queue_id)

While nobody reads statistics, a turn costs that comparison. A reader (`Feed`) calls the `statistics` of a process
directly, between two turns, as a view does: a message would be a turn of its own, which would count as activity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from ..contracts.info_items import InfoItems

Kind = Literal["queue", "channel", "connection"]


class HasStatistics(Protocol):
    """A process that statistics show."""

    def statistics(self) -> InfoItems: ...


class Activity:
    """See the module. `members` are the processes that run, by kind and id; each enters and leaves by itself."""

    __slots__ = ("_changed", "_feeds", "_rounds", "members", "round")

    def __init__(self) -> None:
        self.members: dict[str, tuple[Kind, HasStatistics]] = {}
        #: Changes with each reading; 0 while nobody reads.
        self.round = 0
        self._rounds = 0
        self._changed: list[str] = []
        self._feeds: list[Feed] = []

    def enter(self, process_id: str, kind: Kind, process: HasStatistics) -> None:
        self.members[process_id] = kind, process
        for feed in self._feeds:
            feed.changed[process_id] = None

    def leave(self, process_id: str) -> None:
        """Note that the process ends. Does nothing for one that has not entered."""
        found = self.members.pop(process_id, None)
        if found is not None:
            for feed in self._feeds:
                feed.changed.pop(process_id, None)
                feed.ended.append((found[0], process_id))

    def note(self, process_id: str) -> None:
        if self.round:
            self._changed.append(process_id)

    def open(self) -> Feed:
        """Begin to read; the first `take` of the feed has all processes."""
        feed = Feed(self)
        self._feeds.append(feed)
        self._next_round()
        return feed

    def close(self, feed: Feed) -> None:
        self._feeds.remove(feed)
        if not self._feeds:
            self.round = 0
            self._changed = []

    def _next_round(self) -> None:
        self._rounds += 1
        self.round = self._rounds
        changed, self._changed = self._changed, []
        for feed in self._feeds:
            feed.changed.update(dict.fromkeys(changed))


class Feed:
    """One reader of statistics. It must be closed, or what it has not taken piles up."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        #: The ids of processes whose statistics may differ from those that were read, in this order.
        self.changed: dict[str, None] = dict.fromkeys(activity.members)
        #: Kind and id of those that have ended.
        self.ended: list[tuple[Kind, str]] = []

    def take(self) -> tuple[list[str], list[tuple[Kind, str]]]:
        """The ids of the processes that may have changed since the last call, and those that have ended."""
        self._activity._next_round()
        changed, self.changed = list(self.changed), {}
        ended, self.ended = self.ended, []
        return changed, ended

    def read(self, process_id: str) -> tuple[Kind, InfoItems] | None:
        """The statistics of one process; None if it has ended. One that was blocked lately is read again next time."""
        found = self._activity.members.get(process_id)
        if found is None:
            return None
        items = found[1].statistics()
        if items.get("state") == "flow" or items.get("blocked_share"):
            # A block is over, and its share of the last seconds falls, without a turn of the process.
            self.changed[process_id] = None
        return found[0], items

    def close(self) -> None:
        self._activity.close(self)
