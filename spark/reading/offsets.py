"""Offsets, shares, partitions and loss: which numbers a query reads, as pure functions of the states of its queues.

An offset is JSON:

    {"v": 1, "at": 1763800000000, "cut": 250000, "queues": {"orders": {"id": "9f…", "life": 3, "next": 1234567}}}

`next` is the first number that is not read yet. `at` (milliseconds) and `cut` (numbers in a partition) are those of the
trigger that made the offset, so two offsets always give the same partitions, even if a restart has changed the options.
The end offset of a query's first micro-batch also has `from`, in the same form as `queues`: the numbers at which the
query began. Spark asks a new query for its first offset, asks again after a crash, and logs neither answer; without
`from` a beginning such as `latest` would move. `gaps` and `begin` of a queue describe the micro-batch that ends there.
Keys that this version does not have are passed on from one offset to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...store.messages.lives import Gap
from ..endpoints import Endpoint

#: The version of offsets that this warren writes, and the only one that it reads.
VERSION = 1
#: Numbers in a segment of a queue's index: a partition that begins where a segment does reads no part of another one.
SEGMENT = 16_384
#: A range of fewer numbers is not divided for the sake of `minPartitions`.
SMALLEST_DIVIDED = 10_000


@dataclass(frozen=True)
class QueueState:
    """The state of a queue, as the broker's catalogue or `x-warren-bounds` shows it.

    id          given by the declaration; empty if the broker does not send it
    life, gaps  see `Gap`; 0 and empty if the broker does not send them
    first       the lowest number of a message in the queue
    next        the number that the next message gets
    shard_of    the sharded queue to which this shard belongs
    endpoints   where nodes with all messages of the queue are reached, the node of its master first; empty if the
                broker does not send it
    """

    name: str
    first: int
    next: int
    id: str = ""
    life: int = 0
    gaps: tuple[Gap, ...] = ()
    messages: int = 0
    message_bytes: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    consumers: int = 0
    shard_of: str | None = None

    @property
    def mean_bytes(self) -> float:
        """The average size of a body, 0 if it is not known."""
        return self.message_bytes / self.messages if self.messages else 0.0


#: The keys of an offset, and those of a queue in it that describe only the micro-batch that the offset ends.
_KEYS = {"v", "at", "cut", "queues", "from", "initial"}
OF_MICRO_BATCH = {"gaps", "begin"}


def unknown_keys(offset: Mapping[str, Any]) -> dict[str, Any]:
    """What an offset has besides the keys of this version."""
    return {key: value for key, value in offset.items() if key not in _KEYS}


class QueueRange(NamedTuple):
    """The numbers `first` to before `next` of a queue, which one task reads. `id` and `life` come from the offset."""

    queue: str
    first: int
    next: int
    id: str
    life: int


def make_offset(queues: Mapping[str, Mapping[str, Any]], at: int, cut: int) -> dict[str, Any]:
    """An offset of this version."""
    return {"v": VERSION, "at": at, "cut": cut, "queues": {name: dict(queues[name]) for name in sorted(queues)}}


def place_of(state: QueueState, number: int, begin: int) -> dict[str, Any]:
    """The entry of a queue in an offset, for a micro-batch that reads the numbers `begin` to before `number`.

    It contains the gaps between them, so that the same offsets give the same partitions after the broker has dropped
    its record of these gaps.
    """
    place: dict[str, Any] = {"id": state.id, "life": state.life, "next": number}
    gaps = [list(gap) for gap in sorted(state.gaps) if gap.first < number and gap.next > begin]
    return place | {"gaps": gaps} if gaps else place


def first_number(state: QueueState, wanted: Any) -> int:
    """The number at which `startingOffsets` begins a queue; a negative one counts from the end."""
    place = wanted.get(state.name, "earliest") if isinstance(wanted, Mapping) else wanted
    if place == "earliest":
        return state.first
    if place == "latest":
        return state.next
    return max(0, state.next + place) if place < 0 else min(int(place), state.next)


# --- shares -----------------------------------------------------------------------------------------------------------


def pour(available: Mapping[str, int], budget: int | None) -> dict[str, int]:
    """Divide a budget among queues: each gets what it has up to an equal share, and what is left goes to the others.

    A remainder goes to the queue with fewer messages, and among equals to the first by name. Every queue that has a
    message gets at least one, even if the budget is too small for that.
    """
    if budget is None or sum(available.values()) <= budget:
        return dict(available)
    shares = dict.fromkeys(available, 0)
    left = max(budget, sum(1 for has in available.values() if has))
    # The queue with the least comes first: what it does not need of its equal share goes to the queues behind it.
    waiting = sorted((name for name, has in available.items() if has), key=lambda name: (available[name], name))
    for place, name in enumerate(waiting):
        shares[name] = min(available[name], max(1, -(-left // (len(waiting) - place))))
        left -= shares[name]
    return shares


def share(
    states: Mapping[str, QueueState], starts: Mapping[str, int], messages: int | None, size: int | None
) -> dict[str, int]:
    """For each queue, the first number that a micro-batch within both budgets does not read.

    Numbers in gaps take nothing of a budget: after a failover a queue leaves out a million of them at once.
    """
    parts = {name: without_gaps(starts[name], state.next, state.gaps, state.life) for name, state in states.items()}
    available = {name: sum(map(len, parts[name])) for name in states}
    shares = pour(available, messages)
    if size is not None:
        means = {name: max(1.0, states[name].mean_bytes) for name in shares}
        wanted = {name: round(count * means[name]) for name, count in shares.items()}
        if sum(wanted.values()) > size:
            in_bytes = pour(wanted, size)
            shares = {
                name: min(count, max(1, int(in_bytes[name] / means[name]))) if count else 0
                for name, count in shares.items()
            }
    ends = {}
    for name, count in shares.items():
        is_all = count == available[name]
        ends[name] = max(starts[name], states[name].next) if is_all else _after(parts[name], count, starts[name])
    return ends


def _after(parts: Sequence[range], count: int, start: int) -> int:
    """The number behind the first `count` numbers of these parts; `start` if it is none."""
    end = start
    for part in parts:
        if not count:
            break
        taken = min(count, len(part))
        end, count = part.start + taken, count - taken
    return end


# --- partitions -------------------------------------------------------------------------------------------------------


def without_gaps(first: int, stop: int, gaps: Iterable[Gap], life: int) -> list[range]:
    """The parts of `[first, stop)` outside the gaps of this life and of earlier lives."""
    parts = []
    for gap in sorted(gap for gap in gaps if gap.life <= life):
        if gap.next <= first or gap.first >= stop:
            continue
        if gap.first > first:
            parts.append(range(first, gap.first))
        first = max(first, gap.next)
    if first < stop:
        parts.append(range(first, stop))
    return parts


def cut_range(span: range, cut: int) -> list[range]:
    """Nearly equal pieces of at most `cut` numbers.

    A piece ends where a segment of the queue's index ends if that makes it at most a tenth shorter, so that two tasks
    rarely read one segment.
    """
    pieces = []
    at = span.start
    while at < span.stop:
        left = span.stop - at
        size = -(-left // -(-left // cut))
        stop = at + size
        aligned = stop // SEGMENT * SEGMENT
        if stop < span.stop and stop - aligned <= size // 10:
            stop = aligned
        pieces.append(range(at, stop))
        at = stop
    return pieces


def cut_pieces(pieces: Sequence[QueueRange], cut: int, least: int) -> list[QueueRange]:
    """Partitions of ranges without gaps: pieces of at most `cut` numbers, the longest halved until there are `least`.

    They are sorted by queue and number.
    """
    found = [
        piece._replace(first=span.start, next=span.stop)
        for piece in pieces
        for span in cut_range(range(piece.first, piece.next), cut)
    ]
    while found and len(found) < least:
        longest = max(found, key=lambda piece: (piece.next - piece.first, piece.queue, -piece.first))
        if longest.next - longest.first <= SMALLEST_DIVIDED:
            break
        found.remove(longest)
        middle = (longest.first + longest.next) // 2
        found += [longest._replace(next=middle), longest._replace(first=middle)]
    return sorted(found)


def ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, range]:
    """The numbers of each queue that a micro-batch from the offset `start` to the offset `end` reads, gaps included."""
    starts = end.get("from", start["queues"])
    found = {}
    for name, place in end["queues"].items():
        before = starts.get(name)
        # The end offset has `begin` for a queue that was found, or declared again, in this micro-batch.
        is_known = before is not None and before["id"] == place["id"] and "begin" not in place
        found[name] = range(before["next"] if is_known else place.get("begin", 0), place["next"])
    return found


def plan(start: Mapping[str, Any], end: Mapping[str, Any], least: int) -> list[QueueRange]:
    """The partitions of a micro-batch from the offset `start` to the offset `end`."""
    pieces = []
    for name, span in ranges(start, end).items():
        place = end["queues"][name]
        gaps = [Gap(*gap) for gap in place.get("gaps", ())]
        for part in without_gaps(span.start, span.stop, gaps, place["life"]):
            pieces.append(QueueRange(name, part.start, part.stop, place["id"], place["life"]))
    return cut_pieces(pieces, end["cut"], least)


# --- loss -------------------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """Messages that a query has not read and cannot read any more.

    kind    `other_queue`: the queue was deleted and declared again; `deleted`: there is no such queue; `went_back`: it
            numbers its messages from the beginning; `below_first`: the numbers `first` to before `next` are gone
    """

    queue: str
    kind: str
    first: int = 0
    next: int = 0


def loss(name: str, place: Mapping[str, Any], state: QueueState | None) -> Loss | None:
    """The messages that were lost behind an offset's place in a queue, given the present state of the queue."""
    if state is None:
        return Loss(name, "deleted")
    if place["id"] and state.id and place["id"] != state.id:
        return Loss(name, "other_queue")
    if state.next < place["next"]:
        return Loss(name, "went_back", state.next, place["next"])
    missing = without_gaps(place["next"], state.first, state.gaps, state.life)
    if missing and state.first > place["next"]:
        return Loss(name, "below_first", missing[0].start, missing[-1].stop)
    return None


def cause_of(state: QueueState | None) -> str:
    """The probable cause of a loss of messages, for the error text."""
    if state is None:
        return "the queue does not exist any more"
    reasons = [
        f"{key}={state.arguments[key]}"
        for key in ("x-message-ttl", "x-max-length", "x-max-length-bytes")
        if key in state.arguments
    ]
    if state.consumers:
        reasons.append(f"{state.consumers} consumer{'s' if state.consumers > 1 else ''}")
    if reasons:
        return f"it has {' and '.join(reasons)}"
    return "they were acknowledged, purged or expired meanwhile, or were transient when the broker crashed"
