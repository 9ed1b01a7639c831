"""What goes between single channels, exchanges and queues (CM-275, CM-278, CM-279): empty unless the node's
`management_rates_mode` is `detailed`.
"""

from __future__ import annotations

from typing import Any

from ..call import ApiCall, Range
from ..copy.counted import Name, channel_exchange, channel_queue, exchange_queue
from .consumers import channel_details
from .measures import measured, message_stats

Row = dict[str, Any]
Ranges = dict[str, Range]


def incoming_of_queue(call: ApiCall, name: Name, ranges: Ranges) -> list[Row]:
    """From which exchanges a queue has messages."""
    found: dict[str, int] = {}
    for counted in call.state.counted:
        for exchange, count in counted.pairs.of_queue(name).items():
            found[exchange] = found.get(exchange, 0) + count
    return [
        {
            "exchange": _named(name[0], exchange),
            "stats": _published(call, exchange_queue(exchange, name), count, ranges),
        }
        for exchange, count in sorted(found.items())
    ]


def outgoing_of_exchange(call: ApiCall, name: Name, ranges: Ranges) -> list[Row]:
    """Which queues have messages from an exchange."""
    found: dict[str, int] = {}
    for counted in call.state.counted:
        for queue, count in counted.pairs.of_exchange(name).items():
            found[queue] = found.get(queue, 0) + count
    return [
        {
            "queue": _named(name[0], queue),
            "stats": _published(call, exchange_queue(name[1], (name[0], queue)), count, ranges),
        }
        for queue, count in sorted(found.items())
    ]


def incoming_of_exchange(call: ApiCall, name: Name, ranges: Ranges) -> list[Row]:
    """Which channels publish to an exchange."""
    vhost, exchange = name
    return [
        {
            "channel_details": channel_details(call, row),
            "stats": _published(call, channel_exchange(key, exchange), count, ranges),
        }
        for key, row in call.state.channels.items()
        if row["vhost"] == vhost and (count := row.get("publishes", {}).get((exchange, None))) is not None
    ]


def deliveries_of_queue(call: ApiCall, name: Name, ranges: Ranges) -> list[Row]:
    """Which channels get messages of a queue."""
    vhost, queue = name
    return [
        {
            "channel_details": channel_details(call, row),
            "stats": _delivered(call, channel_queue(key, queue), counts, ranges),
        }
        for key, row in call.state.channels.items()
        if row["vhost"] == vhost and (counts := row.get("deliveries", {}).get(queue)) is not None
    ]


def publishes_of_channel(call: ApiCall, key: str, ranges: Ranges) -> list[Row]:
    """To which exchanges a channel has published."""
    row = call.state.channels[key]
    return [
        {
            "exchange": _named(row["vhost"], exchange),
            "stats": _published(call, channel_exchange(key, exchange), count, ranges),
        }
        for (exchange, queue), count in sorted(row.get("publishes", {}).items(), key=lambda item: item[0][0])
        if queue is None
    ]


def deliveries_of_channel(call: ApiCall, key: str, ranges: Ranges) -> list[Row]:
    """Of which queues a channel has got messages."""
    row = call.state.channels[key]
    return [
        {"queue": _named(row["vhost"], queue), "stats": _delivered(call, channel_queue(key, queue), counts, ranges)}
        for queue, counts in sorted(row.get("deliveries", {}).items())
    ]


def _named(vhost: str, name: str) -> Row:
    return {"name": name, "vhost": vhost}


def _published(call: ApiCall, track: Any, count: int, ranges: Ranges) -> Row:
    history = call.state.history
    return measured(history, history.get(track), ("publish",), [count], ranges.get("msg_rates"))


def _delivered(call: ApiCall, track: Any, counts: list[int], ranges: Ranges) -> Row:
    history = call.state.history
    return message_stats(history, history.get(track), counts, ranges.get("msg_rates"))
