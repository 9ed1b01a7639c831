"""`bottleneck` and `flow_chain` ask a connection, its channels and their queues what holds the connection back."""

from __future__ import annotations

from .....runtime.contract import Address
from .....runtime.errors import ProcessDown, ProcessTimeout
from ....contracts.connection import ToConnection, to_connection
from ....contracts.info_items import InfoItems
from ....contracts.queue import to_queue
from ..registry import ANSWER_SECONDS, Operator, Rows
from .bottlenecks import Verdict, chain, verdict


async def bottleneck(operator: Operator, address: Address[ToConnection], items: InfoItems) -> Verdict | None:
    """What holds the connection with these info items back; None if nothing does.

    Its channels, and the queues that blocked them, are asked only if the answer depends on them.
    """
    channels: list[InfoItems] = []
    queues: dict[str, InfoItems] = {}
    if items["state"] == "flow":
        channels = await _channels(operator, address)
        queues = await _queues(operator, items["vhost"], channels)
    return verdict(items, channels, queues.get, operator.context.node_name)


async def flow_chain(operator: Operator, address: Address[ToConnection], items: InfoItems) -> Rows:
    """The stages from the client of this connection to the disk, a row for each, as far as they block one another
    (CM-206).
    """
    channels = await _channels(operator, address)
    queues = await _queues(operator, items["vhost"], channels)
    found = verdict(items, channels, queues.get, operator.context.node_name)
    return chain(items, channels, list(queues.values()), found)


async def _channels(operator: Operator, address: Address[ToConnection]) -> list[InfoItems]:
    try:
        return await operator.process.ask(address, to_connection.channels_info(), timeout=ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return []


async def _queues(operator: Operator, vhost: str, channels: list[InfoItems]) -> dict[str, InfoItems]:
    """By name: the queues that block any of these channels."""
    found = {}
    for name in sorted({name for channel in channels for name in channel["blocked_by"]}):
        queue = await _queue(operator, vhost, name)
        if queue is not None:
            found[name] = queue
    return found


async def _queue(operator: Operator, vhost: str, name: str) -> InfoItems | None:
    row = operator.context.routing.queue(vhost, name)
    if row is None or row.state != "running":
        return None
    try:
        return await operator.process.ask(row.address, to_queue.info(), timeout=ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return None
