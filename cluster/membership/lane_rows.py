"""The rows of the command `warren links`, made from the items of the links."""

from __future__ import annotations

from ...actors.contracts.membership import LaneRow
from ..links.contract import LaneItems, LinkItems

#: Stands for the lane in the row of a link that is not up.
_NO_LANE: LaneItems = {
    "lane": "",
    "received_bytes": 0,
    "sent_bytes": 0,
    "received_frames": 0,
    "sent_frames": 0,
    "received_messages": 0,
    "sent_messages": 0,
    "unsent": 0,
    "held": 0,
}


def lane_rows(link: LinkItems) -> list[LaneRow]:
    """A row for each lane of a link; one row without a lane if the link is not up."""
    return [
        {
            **lane,
            "node": link["node"],
            "state": link["state"],
            "since": link["since"],
            "last_error": link["reason"],
            "rejected": link["rejected"],
            "round_trip": link["round_trip"],
            "address": link["address"],
            "incarnation": link["incarnation"],
            "open": link["open"],
            "sessions": link["sessions"],
            "version": link["version"],
        }
        for lane in link["lanes"] or [_NO_LANE]
    ]
