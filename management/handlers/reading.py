"""The handlers of GET requests for statistics and for what clients have declared, and those of logins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from ...amqp.fields import Table
from ...routing.properties_key import properties_key
from ..answers import objects, pairs
from ..answers.consumers import consumer
from ..answers.listing import chosen, listed
from ..answers.nodes import nodes as nodes_shown
from ..answers.queue_order import queue_value
from ..call import Answer, ApiCall
from ..copy.counted import Counted, Name
from ..errors import HttpError, login_failed, not_authorised, not_found

Row = dict[str, Any]

#: Bytes and fields of the form of a login. Anybody may send one, so it must not keep this process busy.
LOGIN_MAX, LOGIN_FIELDS_MAX = 65_536, 100


# -- the node and the cluster ---


async def overview(call: ApiCall) -> Any:
    return chosen(call, objects.overview(call))


async def nodes(call: ApiCall) -> Any:
    return await listed(call, nodes_shown(call), lambda row: row)


async def node(call: ApiCall) -> Any:
    found = node_in_path(call)
    if call.flag("memory") and call.state.counted_by(found["name"]) is not None:
        found["memory"] = await _memory(call)
    return chosen(call, found)


def node_in_path(call: ApiCall) -> Row:
    """The node in the path, whether it answers or not. Raises HttpError if the cluster has none of this name."""
    for row in nodes_shown(call):
        if row["name"] == call.names["node"]:
            return row
    raise not_found()


def answering_node(call: ApiCall) -> Counted:
    """The node in the path. Raises HttpError if there is none, or if it does not answer."""
    name = node_in_path(call)["name"]
    counted = call.state.counted_by(name)
    if counted is None:
        raise HttpError(503, "service_unavailable", f"node '{name}' does not answer")
    return counted


async def node_memory(call: ApiCall) -> Any:
    return {"memory": await _memory(call)}


async def node_memory_relative(call: ApiCall) -> Any:
    memory = await _memory(call)
    total = memory["total"]["rss"] or 1
    # As in RabbitMQ, a category that is not empty has at least one percent.
    shares = {name: max(round(100 * size / total), int(size > 0)) for name, size in memory.items() if type(size) is int}
    return {"memory": {"total": 100, **shares}}


async def _memory(call: ApiCall) -> Row:
    counted = answering_node(call)
    found: Row = await call.operate_on(counted.node_name, "memory_breakdown")
    used = counted.node["memory"]["used"] or sum(found.values())
    return {**found, "total": {"erlang": used, "rss": used, "allocated": used}, "strategy": "rss"}


async def cluster_name(call: ApiCall) -> Any:
    return {"name": call.state.node["cluster_name"]}


async def extensions(call: ApiCall) -> Any:
    return []


async def auth(call: ApiCall) -> Any:
    return {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


async def whoami(call: ApiCall) -> Any:
    return {"name": call.user.name, "tags": sorted(call.user.tags)}


async def login(call: ApiCall) -> Any:
    """Check name and password of a form, and set the cookie of a login (CM-226)."""
    text = (await call.body(LOGIN_MAX)).decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=LOGIN_FIELDS_MAX)
    except ValueError:
        raise login_failed() from None
    if "username" not in fields or "password" not in fields:
        raise login_failed()
    user = await call.logins.verify(fields["username"][0], fields["password"][0], call.request)
    user.check("management")
    cookie = f"auth={call.logins.cookie(user)}; Path={call.config.path_prefix or '/'}; HttpOnly; SameSite=Strict"
    if call.request.url.scheme == "https":
        cookie += "; Secure"
    return Answer(200, "ok", {"set-cookie": f"{cookie}; Max-Age={call.config.session_minutes * 60}"})


async def logged_in(call: ApiCall) -> Any:
    """The user who is logged in, or an answer without a user: a browser would report a refusal as an error."""
    try:
        user = await call.logins.login(call.request)
        user.check("management")
    except HttpError:
        return {"name": None, "tags": []}
    return {"name": user.name, "tags": sorted(user.tags)}


async def logout(call: ApiCall) -> Any:
    """Have the browser delete the cookie of its login. No script of the page can, because the cookie is HttpOnly."""
    cookie = f"auth=; Path={call.config.path_prefix or '/'}; HttpOnly; SameSite=Strict; Max-Age=0"
    return Answer(204, None, {"set-cookie": cookie})


async def feature_flags(call: ApiCall) -> Any:
    return await listed(call, call.state.features, lambda row: row)


# -- queues ---


async def queues(call: ApiCall) -> Any:
    if "vhost" in call.names:
        vhost = call.vhost()
        visible = {vhost}
    else:
        visible = set(call.visible_vhosts())
    state = call.state
    names = [name for name in state.sorted_queues() if name[0] in visible and state.queues[name]["shard_of"] is None]

    def exists(name: Name) -> bool:
        return name in state.queues

    if call.flag("disable_stats"):
        return await listed(call, names, partial(_quick_queue, call), _without_vhost, exists=exists)
    ranges = call.ranges()
    build, value_of = partial(objects.queue, call, ranges=ranges), partial(queue_value, call)
    return await listed(call, names, build, _without_vhost, value_of, exists)


def _quick_queue(call: ApiCall, name: Name) -> Row:
    """A queue for requests with `disable_stats`: its declaration and, with `enable_queue_totals`, its lengths."""
    found = {**objects.declared_queue(call, name), "state": "live"}
    if call.flag("enable_queue_totals"):
        stats = call.state.queue_stats.get(name, {})
        for column in ("messages", "messages_ready", "messages_unacknowledged"):
            found[column] = stats.get(column) or 0
    return found


def _without_vhost(name: Name) -> str:
    """The name of a queue or exchange within its virtual host."""
    return name[1]


async def queue_name(call: ApiCall) -> Name:
    """The queue in the path. Raises HttpError."""
    name = call.vhost(), call.names["queue"]
    await call.find(lambda: call.state.queues.get(name))
    return name


async def queue(call: ApiCall) -> Any:
    name = await queue_name(call)
    found = objects.queue(call, name, call.ranges())
    rows: list[Row] = []
    if found.get("consumers"):
        home = call.state.queues[name]["node"]
        rows = await call.operate_on(home, "consumers", vhost=name[0], queue=name[1]) or []
    found |= {
        "consumer_details": [consumer(call, row) for row in rows],
        "incoming": pairs.incoming_of_queue(call, name, call.ranges()),
        "deliveries": pairs.deliveries_of_queue(call, name, call.ranges()),
    }
    return chosen(call, found)


async def queue_bindings(call: ApiCall) -> Any:
    vhost, name = await queue_name(call)
    return await _bindings(call, [vhost], destination=name, destination_type="queue")


# -- exchanges and bindings ---


async def exchanges(call: ApiCall) -> Any:
    visible = {call.vhost()} if "vhost" in call.names else set(call.visible_vhosts())
    names = sorted(name for name in call.state.exchanges if name[0] in visible)
    ranges = call.ranges()
    build = partial(objects.exchange, call, ranges=ranges)
    return await listed(call, names, build, _without_vhost, exists=lambda name: name in call.state.exchanges)


async def exchange_name(call: ApiCall) -> Name:
    """The exchange in the path. Raises HttpError."""
    name = call.vhost(), call.exchange()
    await call.find(lambda: call.state.exchanges.get(name))
    return name


async def exchange(call: ApiCall) -> Any:
    name = await exchange_name(call)
    ranges = call.ranges()
    found = {
        **objects.exchange(call, name, ranges),
        "incoming": pairs.incoming_of_exchange(call, name, ranges),
        "outgoing": pairs.outgoing_of_exchange(call, name, ranges),
    }
    return chosen(call, found)


async def exchange_source(call: ApiCall) -> Any:
    vhost, name = await exchange_name(call)
    return await _bindings(call, [vhost], source=name)


async def exchange_destination(call: ApiCall) -> Any:
    vhost, name = await exchange_name(call)
    return await _bindings(call, [vhost], destination=name, destination_type="exchange")


async def bindings(call: ApiCall) -> Any:
    return await _bindings(call, [call.vhost()] if "vhost" in call.names else call.visible_vhosts())


async def bindings_between(call: ApiCall) -> Any:
    return await _bindings(call, [call.vhost()], **ends(call))


async def binding(call: ApiCall) -> Any:
    for row in await _rows(call, [call.vhost()], {**ends(call), "properties_key": binding_key(call)}):
        return chosen(call, row)
    raise not_found()


def binding_key(call: ApiCall) -> str:
    """The properties key of the binding in the path.

    A client encodes the key for the path, so decoding the path gives the key. RabbitMQ also accepts a key as it is:
    after `…/a.%23` for the routing key `a.#`, decoding the path has undone the encoding of the key as well.
    """
    given = call.names["props"]
    key, tilde, digest = given.rpartition("~") if "~" in given else (given, "", "")
    return (key and properties_key(unquote_plus(key, errors="surrogateescape"), Table())) + tilde + digest


def ends(call: ApiCall) -> dict[str, str]:
    """Source and destination of the bindings in the path."""
    kind = "queue" if "queue" in call.names else "exchange"
    return {
        "source": call.exchange(),
        "destination": call.names["queue" if kind == "queue" else "destination"],
        "destination_type": kind,
    }


async def _bindings(call: ApiCall, vhosts: list[str], **wanted: str) -> Any:
    rows = await _rows(call, vhosts, wanted)
    columns = ("vhost", "source", "destination_type", "destination", "routing_key", "properties_key")
    rows.sort(key=lambda row: [row[name] for name in columns])
    return await listed(call, rows, lambda row: row)


async def _rows(call: ApiCall, vhosts: list[str], wanted: dict[str, str]) -> list[Row]:
    found: list[Row] = []
    for vhost in vhosts:
        rows = await call.operate("bindings", vhost=vhost) or []
        found += [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return found


# -- connections, channels and consumers ---


def _visible_keys(
    call: ApiCall, rows: Mapping[str, Row], vhost: str | None, column: str, value: str | None
) -> list[str]:
    """The keys of the connections or channels that the user may see, by virtual host and name: those in `vhost`, and
    those with this value in the column, unless it is None.
    """
    visible = set(call.visible_vhosts())
    found = [
        key
        for key, row in rows.items()
        if row["vhost"] in visible
        and (call.user.has("monitoring") or row["user"] == call.user.name)
        and vhost in (None, row["vhost"])
        and value in (None, row[column])
    ]
    return sorted(found, key=lambda key: (rows[key]["vhost"], rows[key]["name"]))


async def connections(call: ApiCall) -> Any:
    vhost = call.vhost() if "vhost" in call.names else None
    user = call.names.get("user")
    if user is not None and user != call.user.name:
        call.user.check("administrator")
    ranges, rows = call.ranges(), call.state.connections
    keys = _visible_keys(call, rows, vhost, "user", user)
    build = partial(objects.connection, call, ranges=ranges)
    return await listed(
        call, keys, build, lambda key: str(rows[key]["name"]), exists=lambda key: key in call.state.connections
    )


async def connection_key(call: ApiCall) -> str:
    """The connection in the path. Raises HttpError."""
    wanted = call.names["name"]
    key: str = await call.find(
        lambda: next((key for key, row in call.state.connections.items() if row["name"] == wanted), None)
    )
    if not call.user.has("monitoring") and call.state.connections[key]["user"] != call.user.name:
        raise not_authorised("User not authorised to access object")
    return key


async def connection(call: ApiCall) -> Any:
    return chosen(call, objects.connection(call, await connection_key(call), call.ranges()))


async def channels(call: ApiCall) -> Any:
    vhost = call.vhost() if "vhost" in call.names else None
    owner = await connection_key(call) if "name" in call.names else None
    ranges, rows = call.ranges(), call.state.channels
    keys = _visible_keys(call, rows, vhost, "connection", owner)
    build = partial(objects.channel, call, ranges=ranges)
    return await listed(
        call, keys, build, lambda key: str(rows[key]["name"]), exists=lambda key: key in call.state.channels
    )


async def channel(call: ApiCall) -> Any:
    wanted = call.names["name"]
    key: str = await call.find(
        lambda: next((key for key, row in call.state.channels.items() if row["name"] == wanted), None)
    )
    row = call.state.channels[key]
    if not call.user.has("monitoring") and row["user"] != call.user.name:
        raise not_authorised("User not authorised to access object")
    found = objects.channel(call, key, call.ranges())
    rows = await call.rows_of_all("consumers", vhost=row["vhost"]) if row["consumer_count"] else []
    found |= {
        "consumer_details": [consumer(call, each) for each in rows if each["channel"] == key],
        "publishes": pairs.publishes_of_channel(call, key, call.ranges()),
        "deliveries": pairs.deliveries_of_channel(call, key, call.ranges()),
    }
    return chosen(call, found)


async def consumers(call: ApiCall) -> Any:
    visible = {call.vhost()} if "vhost" in call.names else set(call.visible_vhosts())
    rows = [row for row in await call.rows_of_all("consumers") if row["vhost"] in visible]
    if not call.user.has("monitoring"):
        rows = [row for row in rows if row["user"] == call.user.name]
    rows.sort(key=lambda row: (row["vhost"], row["queue_name"], row["consumer_tag"]))
    return await listed(call, rows, lambda row: consumer(call, row))


# -- virtual hosts ---


async def vhosts(call: ApiCall) -> Any:
    names, build = call.visible_vhosts(), partial(objects.vhost, call)
    return await listed(call, names, build, exists=lambda name: name in call.state.vhosts)


async def vhost(call: ApiCall) -> Any:
    name = call.names["vhost"]
    await call.find(lambda: call.state.vhosts.get(name))
    return chosen(call, objects.vhost(call, call.vhost()))
