"""The handlers of health checks and of the aliveness test (CM-310, CM-311)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...routing.phrases import queue_phrase
from ..answers.nodes import listeners
from ..call import Answer, ApiCall
from ..errors import HttpError, bad_request, not_found

#: Seconds of the units of a certificate's remaining time.
UNITS = {"days": 86_400, "weeks": 7 * 86_400, "months": 28 * 86_400, "years": 365 * 86_400}

OK = {"status": "ok"}

#: The most digits that the text of a number in a path may have.
DIGITS_MAX = 9

#: For each other name under which tools ask for a protocol: the name that listeners have.
PROTOCOLS = {"amqp091": "amqp", "amqps": "amqp/ssl", "prometheus": "http/prometheus"}


def _failed(reason: str, **members: Any) -> Answer:
    return Answer(503, {"status": "failed", "reason": reason, **members})


async def alarms(call: ApiCall) -> Any:
    await call.refresh()
    found = [
        {"node": counted.node_name, "resource": source}
        for counted in call.state.counted
        for source in counted.node["alarms"]
    ]
    return _failed("There are alarms in effect in the cluster", alarms=found) if found else OK


async def local_alarms(call: ApiCall) -> Any:
    await call.refresh()
    found = [{"node": call.state.node_name, "resource": source} for source in call.state.node["alarms"]]
    return _failed("There are alarms in effect on the node", alarms=found) if found else OK


async def virtual_hosts(call: ApiCall) -> Any:
    down = [name for name, row in call.state.vhosts.items() if row["is_down"]]
    return _failed("Some virtual hosts are down", **{"virtual-hosts": down}) if down else OK


async def mirror_sync_critical(call: ApiCall) -> Any:
    """Check that each mirrored queue whose master is on this node has another replica in sync (CM-48)."""
    if len(call.state.node["members"]) == 1:
        return {**OK, "reason": "single node cluster"}
    node = call.state.node_name
    found = [
        _named(row)
        for row in call.state.queues.values()
        if row["is_mirrored"] and row["node"] == node and not row["in_sync"]
    ]
    reason = "There are classic mirrored queues hosted on the target node without synchronised mirrors"
    return _failed(reason, queues=found) if found else OK


async def quorum_critical(call: ApiCall) -> Any:
    """Check that no quorum queue would be left without a majority of its members if this node stopped."""
    if len(call.state.node["members"]) == 1:
        return {**OK, "reason": "single node cluster"}
    node = call.state.node_name
    found = [
        _named(row)
        for row in call.state.queues.values()
        if row["type"] == "quorum" and _needs(node, row["replicas"]["members"], row["replicas"]["online"])
    ]
    reason = "There are queues that would lose their quorum if the target node is shut down"
    return _failed(reason, queues=found) if found else OK


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """A queue as a failed check names it."""
    phrase = queue_phrase(row["vhost"], row["name"])
    return {"name": row["name"], "readable_name": phrase, "type": row["type"], "virtual_host": row["vhost"]}


def _needs(node: str, members: Sequence[str], online: Sequence[str]) -> bool:
    """Whether the members that are online have no majority without this node."""
    return node in online and len(online) - 1 <= len(members) // 2


def _is_number(text: str) -> bool:
    return len(text) <= DIGITS_MAX and text.isascii() and text.isdigit()


async def port_listener(call: ApiCall) -> Any:
    port = call.names["port"]
    if not _is_number(port):
        raise bad_request("Invalid port")
    ports = sorted({row["port"] for row in listeners(call)})
    if int(port) not in ports:
        return _failed("No active listener", missing=int(port), ports=ports)
    return {**OK, "port": int(port)}


async def protocol_listener(call: ApiCall) -> Any:
    wanted = call.names["protocol"].lower()
    protocols = list(dict.fromkeys(row["protocol"] for row in listeners(call)))
    if PROTOCOLS.get(wanted, wanted) not in protocols:
        return _failed("No active listener", missing=wanted, protocols=protocols)
    return {**OK, "protocol": PROTOCOLS.get(wanted, wanted)}


async def certificate_expiration(call: ApiCall) -> Any:
    within, unit = call.names["within"], call.names["unit"]
    if unit not in UNITS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    if not _is_number(within):
        raise bad_request("Invalid expiration value.")
    seconds = int(within) * UNITS[unit]
    expired = await call.operate("check_certificate_expiration", seconds=float(seconds))
    return _failed("Certificates expiring", expired=expired) if expired else OK


async def node_is_healthy(call: ApiCall) -> Any:
    if call.names.get("node", call.state.node_name) != call.state.node_name:
        raise not_found()
    found = call.state.node["alarms"]
    # As RabbitMQ does, this deprecated check answers 200 even if it fails.
    return Answer(200, {"status": "failed", "reason": f"resource alarm(s) in effect: {found}"}) if found else OK


async def aliveness(call: ApiCall) -> Any:
    """Publish a message to the queue of these tests, and get it back."""
    vhost = call.own_vhost()
    try:
        found = await call.change("test_aliveness_as", user=call.user.name, vhost=vhost)
    except HttpError as error:
        if error.status == 401:
            raise
        return _failed(str((error.body or {}).get("reason")))
    return OK if found else _failed("the message that was published could not be fetched")
