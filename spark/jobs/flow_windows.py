"""Windows of time of the job `flow`: from sums of samples to a row for each stage. Pure; times are whole seconds.

A window has *sums*: one for the node (`kind` is `node`), for each object that was blocked (`object`), for each cause
that held connections back (`verdict`), and for each queue with consumers (`consumed`). Spark makes them (`flow`), and
may make them again with more samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

#: The stages from the client to the disk, and alarms. A connection can be blocked by its channels, a channel by its
#: queues, and a queue by a link, by its mirrors or by the disk; nothing blocks the other stages.
STAGES = ("client", "connection", "channel", "queue", "link", "mirrors", "message store", "alarm")
#: A cause counts as the bottleneck of a window only if it held a connection back for at least this share of it.
LEAST_SHARE = 0.05
#: Seconds by which samples of one node may be later than those of another.
LATE = 30


class WindowKey(NamedTuple):
    """Names a sum of a window."""

    start: int
    node: str
    kind: str
    stage: str
    object: str


class Sums(NamedTuple):
    """The sums of the samples that fall into a window. What `value` is depends on the kind: seconds that the samples
    cover (`node`), seconds for which the object was blocked (`object`), the sum of the share of each sample for which
    the cause blocked connections (`verdict`), or seconds times messages that consumers held (`consumed`). `connections`
    is the most connections that a sample shows, for the kind `consumed` the most consumers.
    """

    samples: int
    value: float
    connections: int
    evidence: str
    advice: str
    published: int
    confirmed: int
    delivered: int
    acked: int


@dataclass(frozen=True)
class FlowRow:
    """A stage of a node in a window of time.

    object           what the stage's row is about: the one that was blocked the longest, or the bottleneck
    blocked_share    the share of the window during which the next stage blocked it; 0 for stages that nothing blocks
    verdict          a sentence if this stage is the bottleneck, else None
    connections      how many connections the bottleneck held back at most
    since            when the bottleneck began, if it was the same in the windows before
    published, …     messages a second, of the whole node
    """

    start: datetime
    end: datetime
    node: str
    stage: str
    object: str | None
    blocked_share: float
    verdict: str | None
    connections: int
    since: datetime | None
    evidence: str | None
    advice: str | None
    published: float
    confirmed: float
    delivered: float
    acked: float


@dataclass(frozen=True)
class ConsumedRow:
    """A queue with consumers in a window of time.

    consumers    how many it had at most
    acked        messages that they acknowledged in a second
    unacked      messages that they held on average
    """

    start: datetime
    end: datetime
    node: str
    vhost: str
    queue: str
    consumers: int
    acked: float
    unacked: float


@dataclass(frozen=True)
class Bottleneck:
    """Something that held connections back: in how many windows, when first and last, and how many at most."""

    node: str
    stage: str
    object: str
    windows: int
    first: datetime
    last: datetime
    connections: int
    evidence: str
    advice: str

    @property
    def place(self) -> str:
        """The object with its node, which some objects name already."""
        return self.object if self.node in self.object else f"{self.object} on {self.node}"


@dataclass(frozen=True)
class FlowResult:
    """What a run has seen: windows, each of one node, those in which nothing held connections back, and the
    bottlenecks, the most frequent first.

    is_interrupted    Ctrl-C ended the run
    """

    windows: int
    quiet: int
    bottlenecks: list[Bottleneck]
    is_interrupted: bool


def counted(connections: int) -> str:
    """`1 connection`, or `2 connections`."""
    return f"{connections:,} connection{'s' if connections != 1 else ''}"


def bottleneck(rows: Iterable[FlowRow]) -> FlowRow | None:
    """The row, among those of one window and node, whose stage is the bottleneck; None if no stage is."""
    return next((row for row in rows if row.verdict is not None), None)


class Windows:
    """The windows that may still change, and their rows.

    width    seconds of a window
    """

    def __init__(self, width: int) -> None:
        self.width = width
        #: By start and node.
        self._sums: dict[tuple[int, str], dict[WindowKey, Sums]] = {}
        #: The rows of windows that cannot change, as far as the following window needs them.
        self._rows: dict[tuple[int, str], list[FlowRow]] = {}

    def update(self, sums: Iterable[tuple[WindowKey, Sums]]) -> None:
        """Take new sums, which replace those of the same keys."""
        for key, found in sums:
            self._sums.setdefault((key.start, key.node), {})[key] = found

    def remember(self, rows: Iterable[FlowRow]) -> None:
        """Take the rows of earlier windows, so that a bottleneck that goes on has the time when it began."""
        for row in rows:
            self._rows.setdefault((int(row.start.timestamp()), row.node), []).append(row)

    def sums(self) -> Iterator[tuple[WindowKey, Sums]]:
        """The sums of the windows that may still change."""
        for found in self._sums.values():
            yield from found.items()

    def rows(self) -> dict[tuple[int, str], list[FlowRow]]:
        """The rows of each window and node that may still change, by start and node, in order. Afterwards the
        windows that no sample can change any more are forgotten.
        """
        found = {}
        for at in sorted(self._sums):
            before = bottleneck(self._rows.get((at[0] - self.width, at[1]), ()))
            rows = _rows(at[0], self.width, at[1], self._sums[at], before)
            if rows:
                found[at] = self._rows[at] = rows
        latest = max((start for start, _ in self._sums), default=0)
        for at in [at for at in self._sums if at[0] + self.width + LATE <= latest]:
            del self._sums[at]
        for at in [at for at in self._rows if at[0] + 2 * self.width + LATE <= latest]:
            del self._rows[at]
        return found


def summary(rows: Iterable[FlowRow], is_interrupted: bool = False) -> FlowResult:
    """The bottlenecks of these rows."""
    windows: set[tuple[datetime, str]] = set()
    by_cause: dict[tuple[str, str, str], list[FlowRow]] = {}
    for row in rows:
        windows.add((row.start, row.node))
        if row.verdict is not None and row.object is not None:
            by_cause.setdefault((row.node, row.stage, row.object), []).append(row)
    found = []
    for cause, some in by_cause.items():
        worst = max(some, key=lambda row: row.connections)
        found.append(
            Bottleneck(
                *cause,
                windows=len(some),
                first=some[0].start,
                last=some[-1].end,
                connections=worst.connections,
                evidence=worst.evidence or "",
                advice=worst.advice or "",
            )
        )
    found.sort(key=lambda each: (-each.windows, each.first, each.object))
    return FlowResult(len(windows), len(windows) - sum(each.windows for each in found), found, is_interrupted)


def consumed_rows(width: int, sums: Iterable[tuple[WindowKey, Sums]]) -> dict[tuple[int, str], list[ConsumedRow]]:
    """The rows of the queues of these windows, by start and node."""
    kept = list(sums)
    covered = {(key.start, key.node): found.value for key, found in kept if key.kind == "node"}
    rows: dict[tuple[int, str], list[ConsumedRow]] = {}
    for key, found in kept:
        at = key.start, key.node
        if key.kind == "consumed" and covered.get(at):
            span = datetime.fromtimestamp(key.start, UTC), datetime.fromtimestamp(key.start + width, UTC)
            rates = found.acked / covered[at], found.value / covered[at]
            rows.setdefault(at, []).append(
                ConsumedRow(*span, key.node, key.stage, key.object, found.connections, *rates)
            )
    return rows


def _rows(start: int, width: int, node: str, sums: Mapping[WindowKey, Sums], before: FlowRow | None) -> list[FlowRow]:
    whole = next((found for key, found in sums.items() if key.kind == "node"), None)
    if whole is None or not whole.value:
        return []
    begin = datetime.fromtimestamp(start, UTC)
    end = datetime.fromtimestamp(start + width, UTC)
    rates = [count / whole.value for count in whole[5:]]
    slow = _slow(sums, whole.samples)
    found = []
    for stage in STAGES:
        blocked = [(each.value, key.object) for key, each in sums.items() if (key.kind, key.stage) == ("object", stage)]
        seconds, name = max(blocked, default=(0.0, ""))
        share = round(min(1.0, seconds / whole.value), 4)
        if slow is None or slow[0].stage != stage:
            cause: tuple[Any, ...] = (name or None, share, None, 0, None, None, None)
        else:
            key, held = slow
            goes_on = before is not None and (before.stage, before.object) == (stage, key.object)
            since = before.since if before is not None and goes_on else begin
            text = f"{key.object} holds back {counted(held.connections)}"
            cause = (key.object, share, text, held.connections, since, held.evidence, held.advice)
        found.append(FlowRow(begin, end, node, stage, *cause, *rates))
    return found


def _slow(sums: Mapping[WindowKey, Sums], samples: int) -> tuple[WindowKey, Sums] | None:
    """What held connections back the longest in a window; None if that was less than `LEAST_SHARE` of the window."""
    causes = [(found.value / samples, key, found) for key, found in sums.items() if key.kind == "verdict"]
    share, key, found = max(causes, key=lambda cause: cause[:2], default=(0.0, None, None))
    return None if key is None or found is None or share < LEAST_SHARE else (key, found)
