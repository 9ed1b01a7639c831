"""The backing queue of a queue that has priorities or fair lanes (QP-66)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....amqp.frames import content_properties
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.queue_types import STREAM
from ....routing.rows import QueueRow
from ....store.messages.message import Origin
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.lane_level import LaneLevel
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.levels.lanes import FairRules, ValueOf
from ....store.queue.levels.priority_queue import PriorityQueue
from ....store.queue.memory_queue import MemoryQueue
from ....store.queue.streams.memory_stream import MemoryStream
from ...message_index.keys import keys_of


def levelled_queue(
    settings: QueueSettings,
    make_level: Callable[[int], BackingQueue],
    levels: Mapping[int, BackingQueue] | None = None,
) -> BackingQueue:
    """The backing queue of a queue with priorities or with lanes. `levels` are the levels that exist already: an
    earlier version has written a level for each lane, and these stay until they are empty.
    """
    if settings.max_priority is not None:
        return PriorityQueue(settings.max_priority, make_level, levels)
    own = levels[0] if levels is not None and 0 in levels else make_level(0)
    return _fair_queue(settings, {**(levels or {}), 0: own})


def _fair_queue(settings: QueueSettings, levels: Mapping[int, BackingQueue]) -> FairQueue:
    with_lanes = {number: level for number, level in levels.items() if isinstance(level, LaneLevel)}
    assert len(with_lanes) == len(levels), "streams have no lanes"
    return FairQueue(_value_of(settings), settings.fair_lanes, with_lanes)


def memory_queue(row: QueueRow, settings: QueueSettings) -> BackingQueue:
    """A new backing queue that keeps everything in memory."""
    if row.type == STREAM.name:
        return MemoryStream()
    if not settings.is_one_line:
        return levelled_queue(settings, lambda level: MemoryQueue())
    return MemoryQueue()


def relaid(backing: BackingQueue, before: QueueSettings, settings: QueueSettings) -> BackingQueue:
    """The backing queue that takes the place of `backing`, with or without lanes, when `settings` replace `before`."""
    if isinstance(backing, FairQueue):
        if (settings.fair_by, settings.fair_lanes) != (before.fair_by, before.fair_lanes):
            is_same = settings.fair_by == before.fair_by
            backing.divide_by(backing.value_of if is_same else _value_of(settings), settings.fair_lanes)
        return backing.without_lanes() if backing.is_over else backing
    if settings.fair_by is None or isinstance(backing, PriorityQueue):
        return backing
    lanes = _fair_queue(settings, {0: backing})
    apply_level_settings(lanes, settings)
    return lanes


def apply_level_settings(backing: BackingQueue, settings: QueueSettings) -> None:
    """Apply the settings of levels that a policy may change."""
    if isinstance(backing, FairQueue):
        backing.rules = FairRules(
            settings.fair_batch, settings.fair_weight or {}, settings.fair_cost == "bytes", settings.fair_lane_limit
        )
    elif isinstance(backing, PriorityQueue):
        backing.drops_lowest = settings.drop_lowest


def _value_of(settings: QueueSettings) -> ValueOf | None:
    return None if settings.fair_by is None else value_of(settings.fair_by)


def value_of(source: str) -> ValueOf:
    """The function that returns the value of a message by which its lane is chosen (QP-66)."""
    if source == "routing-key":
        return _routing_key
    if source == "exchange":
        return _exchange
    sources = ("user-id",) if source == "user" else (source,)

    def text(origin: Origin, content: bytes) -> str:
        found = keys_of(content_properties(content), sources)
        return found[0].decode("utf-8", "surrogateescape") if found else ""

    return text


def _routing_key(origin: Origin, content: bytes) -> str:
    return origin.routing_keys[0]


def _exchange(origin: Origin, content: bytes) -> str:
    return origin.exchange
