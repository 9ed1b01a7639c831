"""The backing queue of a queue that has levels: one for each priority, or one for each fair lane (QP-66)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....amqp.frames import content_properties
from ....routing.arguments.arguments import QueueSettings
from ....store.messages.message import Origin
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.levels.fair_queue import FairQueue, FairRules, ValueOf
from ....store.queue.levels.priority_queue import PriorityQueue
from ...message_index.keys import keys_of


def levelled_queue(
    settings: QueueSettings,
    make_level: Callable[[int], BackingQueue],
    levels: Mapping[int, BackingQueue] | None = None,
) -> BackingQueue:
    """The backing queue for settings with a `top_level`; `levels` are those that there are already."""
    if settings.fair_by is not None:
        return FairQueue(value_of(settings.fair_by), settings.fair_lanes, make_level, levels)
    assert settings.max_priority is not None
    return PriorityQueue(settings.max_priority, make_level, levels)


def apply_level_settings(backing: BackingQueue, settings: QueueSettings) -> None:
    """Use what a policy may change about levels."""
    if isinstance(backing, FairQueue):
        backing.rules = FairRules(
            settings.fair_batch, settings.fair_weight or {}, settings.fair_cost == "bytes", settings.fair_lane_limit
        )
    elif isinstance(backing, PriorityQueue):
        backing.drops_lowest = settings.drop_lowest


def value_of(source: str) -> ValueOf:
    """The function that finds out which value decides about the lane of a message (QP-66)."""
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
