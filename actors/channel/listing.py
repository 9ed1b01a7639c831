"""`channel_items`: collects the info items of a channel from its parts; the channel itself adds the others."""

from __future__ import annotations

from ..contracts.channel import ChannelConfig
from ..contracts.info_items import InfoItems
from .consuming.consumers import ChannelConsumers
from .consuming.deliveries import Deliveries
from .consuming.limiter import Limiter
from .publishing.publisher import Publisher


def channel_items(
    config: ChannelConfig,
    publisher: Publisher,
    consumers: ChannelConsumers,
    deliveries: Deliveries,
    limiter: Limiter,
) -> InfoItems:
    return {
        "number": config.number,
        "user": config.user,
        "vhost": config.vhost,
        "connection": config.connection_id,
        "channel_id": config.channel_id,
        "transactional": publisher.held_back is not None,
        "confirm": publisher.is_confirming,
        "consumer_count": len(consumers),
        "messages_unacknowledged": len(deliveries.unacked),
        "messages_unconfirmed": len(publisher.confirms),
        "messages_uncommitted": sum([len(entry[2]) for entry in publisher.held_back or ()]),
        "acks_uncommitted": deliveries.unacked.held_back_count,
        "prefetch_count": consumers.prefetch,
        "global_prefetch_count": limiter.limit or 0,
    }
