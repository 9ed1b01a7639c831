"""`NodeHistograms`: how long things take on a node, and how large its group commits are, for Prometheus (CM-375).

A histogram is a list of counts with fixed bounds, so it has the same few hundred bytes whatever it has counted. What is
frequent is sampled, so that a message pays for less than a comparison:

- Channels in confirm mode time one of up to 64 messages of the node, so that about one in a millisecond is timed. Its
  time counts for all messages that were published since the timed one before it (`publish_to_confirm`,
  `TimedConfirms`). So a slow second in which many messages were published weighs more than one with few.
- One of 1,024 messages of the node is followed to its consumer (`publish_to_deliver`, `DeliverySamples`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...store.messages.parts import Part

#: Upper bounds in seconds, from a commit on a fast disk to a backlog of minutes.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
#: Upper bounds of the messages of one commit.
MESSAGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

#: Seconds between two publishes of a node that are timed until their confirms, and the most messages of which only one
#: is timed.
TIMED_SECONDS, TIMED_OF = 0.001, 64

#: One of this many messages is followed to its consumer.
SAMPLED = 1_024

#: Samples in flight between channels and queues. A further one replaces the oldest.
ON_THE_WAY = 64


class Histogram:
    """How many values were at most each of the `bounds`, or above all of them; and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        #: One count for each bound, of values above the bound before, and one for values above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def values(self) -> dict[str, list[float] | list[int] | float]:
        """The bounds, counts and sum, as plain values that can be sent to the management process."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.total}


class TimedConfirms:
    """Chooses the publishes of channels in confirm mode that are timed until their confirms.

    A channel subtracts the messages that it publishes from `left`, and calls `take` only when that is used up, so that
    all other messages cost no more than the subtraction.
    """

    __slots__ = ("_last", "_of", "histogram", "left")

    def __init__(self, histogram: Histogram) -> None:
        self.histogram = histogram
        #: Messages until the next one is timed. The first one is, so that a node with few messages shows something.
        self.left = 1
        #: Of how many messages one is timed, and when the last one was.
        self._of = 1
        self._last = 0.0

    def take(self, now: float) -> int:
        """Have a publish timed; return how many messages it stands for, those since the one before."""
        weight = self._of - self.left
        if now - self._last < TIMED_SECONDS:
            self._of = min(2 * self._of, TIMED_OF)
        else:
            self._of = max(self._of // 2, 1)
        self._last = now
        self.left = self._of
        return weight


class Sample(NamedTuple):
    """A publish on its way to a queue: its identity, and when its channel received it."""

    channel_id: str
    number: int
    began: float


class DeliverySamples:
    """Chooses the publishes that are followed to their consumers, and remembers them until their queue takes them."""

    __slots__ = ("left", "on_the_way")

    def __init__(self) -> None:
        #: Messages until the next one is followed. A channel subtracts those that it publishes. The first message is
        #: followed, so that a broker with few messages shows something.
        self.left = 1
        #: By queue id. An entry that its queue never takes, because the publish was refused or went to another node,
        #: is replaced by the next one of that queue.
        self.on_the_way: dict[str, Sample] = {}

    def follow(self, queue_id: str, sample: Sample) -> None:
        """Follow a publish to the queue, because `left` is used up."""
        self.left = max(self.left + SAMPLED, 1)
        if len(self.on_the_way) >= ON_THE_WAY and queue_id not in self.on_the_way:
            del self.on_the_way[next(iter(self.on_the_way))]
        self.on_the_way[queue_id] = sample

    def arrived(self, queue_id: str, parts: Sequence[Part]) -> tuple[int, float] | None:
        """The place of the queue's sample among these publishes and when it began, if it is one of them."""
        sample = self.on_the_way.get(queue_id)
        if sample is None:
            return None
        at = 0
        for channel_id, first, count, _ in parts:
            if channel_id == sample.channel_id and first <= sample.number < first + count:
                del self.on_the_way[queue_id]
                return at + sample.number - first, sample.began
            at += count
        return None


class NodeHistograms:
    """See the module.

    journal_sync         seconds of a group commit of a journal, from its begin until its records are on the disk
    journal_messages     messages of a group commit
    publish_to_confirm   seconds from a channel's receipt of a publish until it sends the confirm
    publish_to_deliver   seconds from a channel's receipt of a publish until the queue gives it to a consumer
    raft_commit          seconds from the proposal of a change of metadata until it is answered
    ring_broadcast       seconds from the turn in which a master sends instructions to its ring until all members have
                         received them; of each queue, one broadcast at a time is measured
    """

    __slots__ = (
        "journal_messages",
        "journal_sync",
        "publish_to_confirm",
        "publish_to_deliver",
        "raft_commit",
        "ring_broadcast",
        "samples",
        "timed_confirms",
    )

    def __init__(self) -> None:
        self.journal_sync = Histogram(SECONDS)
        self.journal_messages = Histogram(MESSAGES)
        self.publish_to_confirm = Histogram(SECONDS)
        self.publish_to_deliver = Histogram(SECONDS)
        self.raft_commit = Histogram(SECONDS)
        self.ring_broadcast = Histogram(SECONDS)
        self.samples = DeliverySamples()
        self.timed_confirms = TimedConfirms(self.publish_to_confirm)

    def rows(self) -> dict[str, dict[str, list[float] | list[int] | float]]:
        """All histograms, by the names of their metrics."""
        return {
            "journal_sync_seconds": self.journal_sync.values(),
            "journal_sync_messages": self.journal_messages.values(),
            "publish_to_confirm_seconds": self.publish_to_confirm.values(),
            "publish_to_deliver_seconds": self.publish_to_deliver.values(),
            "raft_commit_seconds": self.raft_commit.values(),
            "ring_broadcast_seconds": self.ring_broadcast.values(),
        }
