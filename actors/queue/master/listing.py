"""The info items of a queue for listings, with those that only its master has (AB-176)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....amqp.frames import content_properties
from ....amqp.properties import decode_properties
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.inspection import layers
from ....store.queue.levels.fair_queue import FairQueue
from ....store.queue.levels.level_tags import LEVEL_SHIFT
from ..consumers.consumers import Consumers
from ..listing import replica_items
from .dead_letters.dead_letterer import DeadLetterer
from .range_readers import RangeReaders
from .utilisation import Utilisation

if TYPE_CHECKING:
    from ...contracts.info_items import InfoItems
    from ..replica_state import ReplicaState

#: Lanes that a listing shows of a queue.
LANES_SHOWN = 100


def queue_items(
    state: ReplicaState,
    queue_mode: str,
    consumers: Consumers,
    range_readers: RangeReaders,
    dead_letterer: DeadLetterer,
    utilisation: Utilisation,
    deduplicated: int | None,
) -> InfoItems:
    """rabbitmqctl's info items of a queue."""
    active = consumers.active
    # An exclusive consumer is the only one of its queue.
    exclusive = next(iter(consumers)) if consumers.has_exclusive() else None
    numbers, lives = range_readers.numbers(), range_readers.lives()
    capacity = round(utilisation.value(), 4) if len(consumers) else 0
    # The backing queue counts what the channels have: to add it up would take 40 ms for 65,535 channels.
    items = replica_items(state, state.channels.values(), state.backing.totals().pending)
    items |= {
        "consumers": len(consumers),
        # The same number under an old and a new name.
        "consumer_utilisation": capacity,
        "consumer_capacity": capacity,
        "head_message_timestamp": _head_timestamp(state.backing),
        "queue_mode": queue_mode,
        "single_active_consumer_tag": active.tag if active else "",
        "exclusive_consumer_tag": exclusive.tag if exclusive else "",
        "exclusive_consumer": exclusive.channel.channel_id if exclusive else None,
        "dead_lettered": dict(dead_letterer.counts.dead),
        "dead_dropped": dict(dead_letterer.counts.dropped),
        "layers": layers(state.backing)._asdict(),
        "readers": len(range_readers.readers),
        "first_number": None if numbers is None else numbers.start,
        "next_number": None if numbers is None else numbers.stop,
        "life": None if lives is None else lives.life,
        "gaps": None if lives is None else [list(gap) for gap in lives.gaps],
        "deduplicated": deduplicated,
    }
    return items


def lane_items(backing: BackingQueue) -> list[InfoItems] | None:
    """The longest lanes of a queue with fair lanes (QP-71); None for any other."""
    if not isinstance(backing, FairQueue):
        return None
    return [{"lane": lane, "length": length, "credit": credit} for lane, length, credit in backing.longest(LANES_SHOWN)]


def _head_timestamp(backing: BackingQueue) -> int | str:
    """The timestamp of the oldest message of the highest priority that has any; '' if the message has none.

    Unacknowledged messages count, unless their body is on the disk: a listing must not wait for the disk.
    """
    ready, pending = backing.head(), next(backing.pending_numbers(), None)
    tags = [tag for tag in (pending, None if ready is None else ready.tag) if tag is not None]
    if not tags:
        return ""
    oldest = max(tags, key=lambda tag: (tag >> LEVEL_SHIFT, -tag))
    if ready is not None and ready.tag == oldest or backing.prepare_pending([oldest]) is not None:
        found = ready
    else:
        found = next(iter(backing.pending_messages([oldest])), None)
    if found is None or not found.content:
        return ""
    timestamp = decode_properties(content_properties(found.content)).timestamp
    return "" if timestamp is None else timestamp
