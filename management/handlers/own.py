"""The handlers of warren's own endpoints (CM-268), under names that RabbitMQ does not use."""

from __future__ import annotations

from typing import Any

from ..answers.consumers import consumer_group
from ..answers.listing import listed
from ..call import ApiCall, integer
from ..copy.held_back import held_back, stages
from ..copy.node_link import OperationRefused
from ..errors import HttpError, bad_request, of_refusal
from .reading import answering_node, exchange_name, queue_name

#: The most events that an answer has if the request has no `count`.
EVENTS_SHOWN = 20


async def flow(call: ApiCall) -> Any:
    """Why connections are blocked or slow: a row for each one that is, as `warren diagnose` shows it."""
    return await listed(call, held_back(call.state), lambda row: row)


async def flow_chain(call: ApiCall) -> Any:
    """The stages between the client of one connection and the disk, as `warren flow_chain` shows them."""
    name = call.names["connection"]
    return await call.find(lambda: stages(call.state, name))


async def ring(call: ApiCall) -> Any:
    """The ring of a mirrored queue, as `warren show_ring` shows it."""
    vhost, name = await queue_name(call)
    try:
        return await call.perform("show_ring", vhost=vhost, name=name)
    except OperationRefused as refusal:
        if refusal.text == "not_mirrored":
            raise HttpError(404, "not_found", f"queue '{name}' in vhost '{vhost}' is not mirrored") from None
        raise of_refusal(refusal) from None


async def rings(call: ApiCall) -> Any:
    """The rings of all mirrored queues, as `warren rings` shows them."""
    vhosts = [call.vhost()] if "vhost" in call.names else call.visible_vhosts()
    rows = [
        {**row, "vhost": vhost} for vhost in vhosts for row in await call.operate("rings", vhost=vhost, name=None) or []
    ]
    return await listed(call, rows, lambda row: row)


async def recent_events(call: ApiCall) -> Any:
    """What has happened to the cluster lately, the latest first: `?count=20`."""
    count = integer(call.query("count")) if call.query("count") else EVENTS_SHOWN
    return await listed(call, call.state.recent_events.newest(max(0, count)), lambda row: row)


async def groups(call: ApiCall) -> Any:
    """The groups of consumers, by virtual host and name: consumers whose argument `x-consumer-group` is the same."""
    vhosts = [call.vhost()] if "vhost" in call.names else call.visible_vhosts()
    of_group: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for vhost in vhosts:
        for row in await call.rows_of_all("consumers", vhost=vhost):
            name = row["arguments"].get("x-consumer-group")
            if name:
                of_group.setdefault((vhost, name), []).append(row)
    # The queues must be no older than their consumers, because the lag is the distance between the two.
    await call.refresh()
    rows = [consumer_group(call, *key, of_group[key]) for key in sorted(of_group)]
    return await listed(call, rows, lambda row: row)


async def environment(call: ApiCall) -> Any:
    """The settings of a node with their values and origins, as `warren environment` shows them; secrets are blank."""
    rows = await call.operate_on(answering_node(call).node_name, "environment")
    return await listed(call, rows, lambda row: row)


async def log(call: ApiCall) -> Any:
    """The newest lines of a node's log, the oldest first: `?level=warning&text=part&lines=100`."""
    arguments: dict[str, Any] = {name: value for name in ("level", "text") if (value := call.query(name))}
    if call.query("lines"):
        arguments["lines"] = integer(call.query("lines"))
    return await call.operate_on(answering_node(call).node_name, "recent_log", **arguments) or []


async def route(call: ApiCall) -> Any:
    """The queues that a message would reach, without publishing it: `?routing_key=a.b&header.type=x`."""
    vhost, exchange = await exchange_name(call)
    prefix = "header."
    headers = {
        name.removeprefix(prefix): value for name, value in call.request.query_params.items() if name.startswith(prefix)
    }
    key = call.query("routing_key") or ""
    arguments = {"vhost": vhost, "exchange": exchange, "routing_key": key, "headers": headers}
    names = await call.operate("would_route", **arguments) or []
    return {"exchange": exchange, "routing_key": key, "queues": names, "routed": bool(names)}


async def messages(call: ApiCall) -> Any:
    """Messages of indexed queues by key or id: `?queue=a&queue=b&key=k&begin=&end=&max=`."""
    vhost = call.own_vhost()
    arguments: dict[str, Any] = {"id": call.names["id"]} if "id" in call.names else {}
    if not arguments:
        queues, key = call.request.query_params.getlist("queue"), call.query("key")
        if not queues or key is None:
            raise bad_request("a search needs the parameters 'queue' and 'key'")
        arguments = {"queues": queues, "key": key}
        for name, operand in (("begin", "begin"), ("end", "end"), ("max", "max_num")):
            if call.query(name):
                arguments[operand] = integer(call.query(name))
    return await call.operate("query_message", vhost=vhost, **arguments)
