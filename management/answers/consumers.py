"""Consumers and groups of consumers as the API shows them (CM-276, QP-111)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..call import ApiCall
from .objects import connection_details

Row = dict[str, Any]


def channel_details(call: ApiCall, row: Row) -> Row:
    """What consumers and others show of a channel."""
    owner = connection_details(call, row)
    return {
        "connection_name": owner["name"],
        "name": row["name"],
        "node": row["node"],
        "number": row["number"],
        "peer_host": owner["peer_host"],
        "peer_port": owner["peer_port"],
        "user": row["user"],
    }


def consumer(call: ApiCall, row: Row) -> Row:
    """A consumer (CM-276)."""
    channel_row = call.state.channels.get(row["channel"])
    details = {} if channel_row is None else channel_details(call, channel_row)
    return {
        "queue": {"name": row["queue_name"], "vhost": row["vhost"]},
        "consumer_tag": row["consumer_tag"],
        "channel_details": details,
        "ack_required": row["ack_required"],
        "prefetch_count": row["prefetch_count"],
        "exclusive": row["exclusive"],
        "active": row["active"],
        "activity_status": row["activity_status"],
        "arguments": row["arguments"],
        "consumer_timeout": "undefined",
        # RabbitMQ has no such key: what keeps the consumer from getting a message now (QP-116).
        "blocked_by": row["blocked_by"],
    }


def consumer_group(call: ApiCall, vhost: str, name: str, rows: Sequence[Row]) -> Row:
    """A group of consumers, from the rows of all its consumers (QP-111).

    `lag` is how far the oldest message that a consumer of the group holds is behind the newest of its queue, in the
    queue where that is farthest. It is null if the group holds messages of a queue with priorities or fair lanes, which
    does not number its messages in one sequence, or of a queue whose statistics have not come yet.
    """
    state = call.state
    lags: list[int | None] = []
    for row in rows:
        newest = state.queue_stats.get((vhost, row["queue_name"]), {}).get("next_number")
        held = row.get("lowest_unacked")
        lags.append(0 if held is None else None if newest is None else max(0, newest - 1 - held))
    delivered = sum(row.get("delivered", 0) for row in rows)
    return {
        "name": name,
        "vhost": vhost,
        "queues": sorted({row["queue_name"] for row in rows}),
        "consumers": len(rows),
        "messages_unacknowledged": sum(row.get("unacked", 0) for row in rows),
        "lag": None if None in lags else max(lag for lag in lags if lag is not None),
        "deliver": delivered,
        "deliver_details": {"rate": state.group_rates.rate((vhost, name), delivered, state.node["time"])},
    }
