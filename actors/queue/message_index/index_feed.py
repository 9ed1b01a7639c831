"""`IndexFeed`: the reports of a queue to the message index that have not been sent yet.

The core of an indexed queue writes into it what comes and what leaves; a queue that is not indexed has none. The feed
is bounded. When reports pile up because the index is slow or down, the feed **falls behind**: it drops them, and
`Indexing` later reads and reports the messages that are still in the queue, and has those marked as lost that left. So
no client ever waits for the index, and a message that comes and leaves in the meantime is never in it.

A queue that cannot be read by number, such as one with priorities, cannot catch up: the messages whose reports were
dropped are not found, and those whose departures were dropped count as being in the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ....amqp.frames import content_properties
from ....store.message_index.steps import Gone, Rest
from ...contracts.message_index import Came, Report

#: The most messages and departures that wait in the feed, and the most bytes of their properties. With more, the feed
#: falls behind.
MOST_WAITING = 32_768
MOST_BYTES = 8 << 20
#: The feed adds no more to a report that has this many messages. The departure of any number of messages counts as one.
REPORT_MESSAGES = 4096


def count_of(steps: Iterable[Report]) -> int:
    """How many messages came or left in these reports. A report that all messages below a number left counts as one."""
    return sum(map(_weight, steps))


def _weight(step: Report) -> int:
    if isinstance(step, Came):
        return len(step.props)
    return len(step.numbers) if isinstance(step, Gone) else 1


class IndexFeed:
    """The reports of one queue. `wall_clock` gives seconds since the epoch.

    next_number   returns the number that the next message gets; None for a queue that cannot be read by number, which
                  therefore cannot catch up
    """

    __slots__ = (
        "_bytes",
        "_last",
        "_steps",
        "_waiting",
        "_wall_clock",
        "behind",
        "behind_since",
        "is_behind",
        "next_number",
    )

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self.next_number: Callable[[], int] | None = None
        self._last = 0
        self._steps: deque[Report] = deque()
        self._waiting = self._bytes = 0
        #: Whether the queue has to catch up. It may have to even if no messages have to be read, because departures may
        #: have been dropped.
        self.is_behind = False
        #: The numbers whose messages have to be read and reported before the reports that wait here are sent.
        self.behind = range(0)
        #: When the feed fell behind, in ms since the epoch.
        self.behind_since = 0

    def now(self) -> int:
        """The time in ms since the epoch. It never goes back, even if the clock does."""
        self._last = max(self._last, int(self._wall_clock() * 1000))
        return self._last

    @property
    def is_empty(self) -> bool:
        return not self._steps and not self.is_behind

    @property
    def waiting(self) -> int:
        """Messages and departures that are not reported yet."""
        return self._waiting + len(self.behind)

    def came(self, first: int, contents: Sequence[bytes]) -> None:
        """Report that these messages, with the numbers from `first` on, came into the queue."""
        step = Came(first, self.now(), list(map(content_properties, contents)))
        self._bytes += sum(map(len, step.props))
        self._add(step)

    def gone(self, reason: str, numbers: Sequence[int], detail: str = "") -> None:
        """Report that the messages with these numbers have left the queue."""
        self._add(Gone(reason, detail, self.now(), numbers))

    def rest_is_gone(self, reason: str, stop: int, kept: frozenset[int] = frozenset()) -> None:
        """Report that all messages below the number `stop`, except those of `kept`, have left the queue."""
        self._add(Rest(reason, self.now(), stop, kept))

    def _add(self, step: Report) -> None:
        self._waiting += _weight(step)
        self._steps.append(step)
        if self._waiting > MOST_WAITING or self._bytes > MOST_BYTES:
            self._fall_behind()

    def take(self) -> list[Report]:
        """Remove and return the next report."""
        steps: list[Report] = []
        count = 0
        while self._steps and count < REPORT_MESSAGES:
            step = self._steps.popleft()
            steps.append(step)
            count += len(step.props) if isinstance(step, Came) else 1
            self._waiting -= _weight(step)
            if isinstance(step, Came):
                self._bytes -= sum(map(len, step.props))
        return steps

    def repeat_from(self, number: int) -> None:
        """Note that the index has every message below `number`: later messages that are not in the feed have to be read
        and reported.
        """
        if self.next_number is not None:
            waiting = next((step.first for step in self._steps if isinstance(step, Came)), self.next_number())
            self.behind = range(number, waiting)
            self.behind_since = self.now()
            if self.behind:
                self.is_behind = True

    def _fall_behind(self) -> None:
        """Drop the reports that wait. The messages that are still in the queue are to be read again."""
        came = [step for step in self._steps if isinstance(step, Came)]
        self._steps.clear()
        self._waiting = self._bytes = 0
        if self.next_number is None:
            return
        self.is_behind = True
        stop = max([self.next_number(), *(step.first + len(step.props) for step in came)])
        if not self.behind:
            self.behind_since = self.now()
            self.behind = range(min((step.first for step in came), default=stop), stop)
        else:
            self.behind = range(self.behind.start, stop)
