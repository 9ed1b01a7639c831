"""The operation `diagnose`: which stage holds which clients back (flow-control section 11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ....runtime.contract import Address
from ....runtime.errors import ProcessDown, ProcessTimeout
from ...connection.contract import ToConnection, to_connection
from ...metadata.info_items import InfoItems
from ...queue.contract import to_queue
from .bottlenecks import verdict
from .listings import ANSWER_SECONDS, connections
from .registry import OperationError, Operator, Rows, operation

#: The longest stretch that is watched, in seconds.
LONGEST = 60.0


@operation()
async def diagnose(operator: Operator, *, seconds: float = 1.0) -> AsyncIterator[Rows]:
    """A row for each connection that something holds back: what it is, how that shows, and what to do.

    Connections are looked at twice, `seconds` apart, to see for how long each stage was blocked in between.
    """
    if not 0 < seconds <= LONGEST:
        raise OperationError("data", f"seconds must be more than 0 and at most {LONGEST:g}, not {seconds:g}")
    before = _Blocked()
    async for address, items in connections(operator):
        before.note("connection", items["pid"], items)
        if _is_held_back(items):
            for channel in await _channels(operator, address):
                before.note("channel", channel["channel_id"], channel)
                for name in channel["blocked_by"]:
                    before.note("queue", (items["vhost"], name), await _queue(operator, items["vhost"], name))
    await operator.process.sleep(seconds)
    async for address, items in connections(operator):
        if not _is_held_back(items):
            continue
        vhost = items["vhost"]
        items = before.with_share("connection", items["pid"], items, seconds)
        channels = [
            before.with_share("channel", channel["channel_id"], channel, seconds)
            for channel in await _channels(operator, address)
        ]
        queues: dict[str, InfoItems] = {}
        for name in {name for channel in channels for name in channel["blocked_by"]}:
            queue = await _queue(operator, vhost, name)
            if queue is not None:
                queues[name] = before.with_share("queue", (vhost, name), queue, seconds)
        found = verdict(items, channels, queues.get, operator.context.node_name, seconds)
        if found is not None:
            yield [found.row(items)]


class _Blocked:
    """For how many seconds each thing had been blocked at the first look."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, Any], float] = {}

    def note(self, kind: str, name: Any, items: InfoItems | None) -> None:
        if items is not None:
            self._seconds[kind, name] = items["blocked_seconds"]

    def with_share(self, kind: str, name: Any, items: InfoItems, seconds: float) -> InfoItems:
        """The items with the share of the last `seconds` during which the thing was blocked, 0 to 1."""
        blocked = items["blocked_seconds"] - self._seconds.get((kind, name), 0.0)
        return {**items, "blocked_share": min(1.0, blocked / seconds)}


def _is_held_back(items: InfoItems) -> bool:
    return bool(items["pauses"]) or items["state"] in ("flow", "blocked", "blocking")


async def _channels(operator: Operator, address: Address[ToConnection]) -> list[InfoItems]:
    try:
        return await operator.process.ask(address, to_connection.channels_info(), timeout=ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return []


async def _queue(operator: Operator, vhost: str, name: str) -> InfoItems | None:
    row = operator.context.routing.queue(vhost, name)
    if row is None or row.state != "running":
        return None
    try:
        return await operator.process.ask(row.address, to_queue.info(), timeout=ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return None
