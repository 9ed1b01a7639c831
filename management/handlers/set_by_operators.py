"""Handlers for virtual hosts, users, permissions, policies, parameters and limits."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from ..answers import objects
from ..answers.listing import chosen, listed
from ..call import Answer, ApiCall, boolean, required
from ..errors import bad_request, not_authorised, not_found

Row = dict[str, Any]

CREATED, CHANGED = Answer(201), Answer(204)


def _table(call: ApiCall, name: str) -> list[Row]:
    return call.state.definitions.get(name, [])


def _one(rows: Sequence[Row]) -> Row:
    """The only row. Raises HttpError 404 if there is none."""
    if not rows:
        raise not_found()
    return rows[0]


# -- virtual hosts ---


async def put_vhost(call: ApiCall) -> Any:
    name = call.names["vhost"]
    fields = await call.fields()
    is_new = name not in call.state.vhosts
    tags, traced = fields.get("tags"), fields.get("tracing")
    is_traced = None if traced is None else boolean(traced)
    queue_type = fields.get("default_queue_type", fields.get("defaultqueuetype"))
    await call.change(
        "add_vhost",
        name=name,
        description=fields.get("description"),
        tags=None if tags is None else _words(tags),
        default_queue_type=queue_type,
        granted_to=call.user.name if is_new else None,
    )
    if is_traced is not None:
        await call.change("trace", vhost=name, on=is_traced)
    return CREATED if is_new else CHANGED


async def delete_vhost(call: ApiCall) -> Any:
    await call.find(lambda: call.state.vhosts.get(call.names["vhost"]))
    await call.change("delete_vhost", name=call.names["vhost"])
    return CHANGED


async def start_vhost(call: ApiCall) -> Any:
    await call.find(lambda: call.state.vhosts.get(call.names["vhost"]))
    node = call.names["node"]
    if call.state.counted_by(node) is None:
        raise bad_request(f"Request to node {node} failed with nodedown")
    await call.operate_on(node, "restart_vhost", name=call.names["vhost"])
    await call.refresh()
    return CHANGED


def _words(value: Any) -> list[str]:
    """Tags: text with commas, or a list. Raises HttpError."""
    if not isinstance(value, (str, list)) or not all(isinstance(part, str) for part in value):
        raise bad_request(["not_string", "tags"])
    parts = value if isinstance(value, list) else str(value).split(",")
    return [str(part).strip() for part in parts if str(part).strip()]


# -- users ---


async def users(call: ApiCall) -> Any:
    return await listed(call, _users(call), objects.user)


async def users_without_permissions(call: ApiCall) -> Any:
    granted = {user for user, _ in call.state.permissions}
    return await listed(call, [row for row in _users(call) if row["name"] not in granted], objects.user)


def _users(call: ApiCall) -> list[Row]:
    return sorted(_table(call, "users"), key=lambda row: str(row["name"]))


async def user(call: ApiCall) -> Any:
    found = await call.find(lambda: call.state.users.get(call.names["user"]))
    return chosen(call, objects.user(found))


async def put_user(call: ApiCall) -> Any:
    name, fields = call.names["user"], await call.fields()
    if "tags" not in fields:
        raise bad_request("tags_not_present")
    tags = _words(fields["tags"])
    if "password" in fields and "password_hash" in fields:
        raise bad_request("both_password_and_password_hash_are_provided")
    known = call.state.users.get(name)
    password, hashed = fields.get("password") or "", fields.get("password_hash")
    if not isinstance(password, str) or hashed is not None and not isinstance(hashed, str):
        raise bad_request(["not_string", "password"])
    if hashed:
        try:
            base64.b64decode(hashed, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(["not_base64", hashed]) from None
    await call.change(
        "put_user",
        user=name,
        password=password,
        password_hash=hashed or "",
        hashing_algorithm=fields.get("hashing_algorithm") or "rabbit_password_hashing_sha256",
        tags=tags,
    )
    return CREATED if known is None else CHANGED


async def delete_user(call: ApiCall) -> Any:
    await call.find(lambda: call.state.users.get(call.names["user"]))
    await call.change("delete_user", user=call.names["user"])
    return CHANGED


async def delete_users(call: ApiCall) -> Any:
    (names,) = required(await call.fields(), "users")
    if not isinstance(names, list):
        raise bad_request(["not_list", "users"])
    for name in names:
        if not isinstance(name, str) or name not in call.state.users:
            raise bad_request(["no_such_user", name])
    for name in dict.fromkeys(names):
        await call.change("delete_user", user=name)
    return CHANGED


# -- permissions ---


def _permission(row: Row) -> Row:
    return {name: row[name] for name in ("user", "vhost", "configure", "write", "read")}


def _topic_permission(row: Row) -> Row:
    return {name: row[name] for name in ("user", "vhost", "exchange", "write", "read")}


async def _permissions(call: ApiCall, table: str) -> list[Row]:
    """The rows of a table for the virtual host and the user in the path. Raises HttpError 404 if one does not exist."""
    vhost, name = call.names.get("vhost"), call.names.get("user")
    if vhost is not None:
        await call.find(lambda: call.state.vhosts.get(vhost))
    if name is not None:
        await call.find(lambda: call.state.users.get(name))
    rows = [row for row in _table(call, table) if vhost in (None, row["vhost"]) and name in (None, row["user"])]
    return sorted(rows, key=lambda row: (row["vhost"], row["user"], row.get("exchange", "")))


async def permissions(call: ApiCall) -> Any:
    return await listed(call, await _permissions(call, "permissions"), _permission)


async def permission(call: ApiCall) -> Any:
    return chosen(call, _permission(_one(await _permissions(call, "permissions"))))


async def _named_in_permission(call: ApiCall) -> tuple[str, str]:
    vhost, name = call.names["vhost"], call.names["user"]
    if vhost not in call.state.vhosts or name not in call.state.users:
        await call.refresh()
    if vhost not in call.state.vhosts or name not in call.state.users:
        raise bad_request("vhost_or_user_not_found")
    return vhost, name


async def put_permission(call: ApiCall) -> Any:
    fields = await call.fields()
    configure, write, read = required(fields, "configure", "write", "read")
    vhost, name = await _named_in_permission(call)
    is_new = (name, vhost) not in call.state.permissions
    await call.change("set_permissions", user=name, vhost=vhost, configure=configure, write=write, read=read)
    return CREATED if is_new else CHANGED


async def delete_permission(call: ApiCall) -> Any:
    row = _one(await _permissions(call, "permissions"))
    await call.change("clear_permissions", user=row["user"], vhost=row["vhost"])
    return CHANGED


async def topic_permissions(call: ApiCall) -> Any:
    return await listed(call, await _permissions(call, "topic_permissions"), _topic_permission)


async def user_topic_permissions(call: ApiCall) -> Any:
    """The topic permissions of one user in one virtual host: 404 if there are none, as RabbitMQ answers."""
    rows = await _permissions(call, "topic_permissions")
    _one(rows)
    return await listed(call, rows, _topic_permission)


async def put_topic_permission(call: ApiCall) -> Any:
    """Set the permission for one exchange: 201 if it is the user's first one in this virtual host, as in RabbitMQ."""
    fields = await call.fields()
    exchange, write, read = required(fields, "exchange", "write", "read")
    vhost, name = await _named_in_permission(call)
    is_new = (name, vhost) not in {(row["user"], row["vhost"]) for row in _table(call, "topic_permissions")}
    await call.change("set_topic_permissions", user=name, vhost=vhost, exchange=exchange, write=write, read=read)
    return CREATED if is_new else CHANGED


async def delete_topic_permission(call: ApiCall) -> Any:
    """Clear the permission for the exchange in the path, or all permissions if it names none. As in RabbitMQ, it is no
    error if the user has a permission for another exchange only.
    """
    row = _one(await _permissions(call, "topic_permissions"))
    exchange = call.names.get("exchange")
    await call.change("clear_topic_permissions", user=row["user"], vhost=row["vhost"], exchange=exchange)
    return CHANGED


# -- policies ---


# The table of endpoints binds `is_operator`. The path of a request does not decide it, because a name in it may contain
# `/operator-policies`.


def _policies(call: ApiCall, is_operator: bool) -> list[Row]:
    vhosts = [call.vhost()] if "vhost" in call.names else call.visible_vhosts()
    rows = [
        row
        for row in _table(call, "policies")
        if row["is_operator"] == is_operator
        and row["vhost"] in vhosts
        and call.names.get("name") in (None, row["name"])
    ]
    return sorted(rows, key=lambda row: (row["vhost"], row["name"]))


async def policies(call: ApiCall, *, is_operator: bool) -> Any:
    return await listed(call, _policies(call, is_operator), objects.policy)


async def policy(call: ApiCall, *, is_operator: bool) -> Any:
    if not _policies(call, is_operator):
        await call.refresh()
    return chosen(call, objects.policy(_one(_policies(call, is_operator))))


async def put_policy(call: ApiCall, *, is_operator: bool) -> Any:
    vhost, name = call.ruled_vhost(), call.names["name"]
    fields = await call.fields()
    pattern, definition = required(fields, "pattern", "definition")
    is_new = not _policies(call, is_operator)
    priority = fields.get("priority", 0)
    if isinstance(priority, str):
        try:
            priority = int(priority)
        except ValueError:
            reason = f'Validation failed\n\npriority should be a number, actually was <<"{priority}">>\n'
            raise bad_request(reason) from None
    await call.change(
        "set_operator_policy" if is_operator else "set_policy",
        name=name,
        vhost=vhost,
        pattern=pattern,
        definition=json.dumps(definition),
        priority=priority,
        apply_to=fields.get("apply-to") or ("queues" if is_operator else "all"),
    )
    return CREATED if is_new else CHANGED


async def delete_policy(call: ApiCall, *, is_operator: bool) -> Any:
    call.ruled_vhost()
    row = _one(_policies(call, is_operator))
    operation = "clear_operator_policy" if is_operator else "clear_policy"
    await call.change(operation, name=row["name"], vhost=row["vhost"])
    return CHANGED


# -- parameters ---


def _parameters(call: ApiCall) -> list[Row]:
    if not call.user.has("policymaker"):
        raise not_authorised("User not authorised to access object")
    vhosts = [call.vhost()] if "vhost" in call.names else call.visible_vhosts()
    rows = [
        row
        for row in _table(call, "parameters")
        if row["vhost"] in vhosts
        and call.names.get("component") in (None, row["component"])
        and call.names.get("name") in (None, row["name"])
    ]
    return sorted(rows, key=lambda row: (row["vhost"], row["component"], row["name"]))


def _parameter(row: Row) -> Row:
    return {
        "vhost": row["vhost"],
        "component": row["component"],
        "name": row["name"],
        "value": json.loads(row["value"]),
    }


async def parameters(call: ApiCall) -> Any:
    return await listed(call, _parameters(call), _parameter)


async def parameter(call: ApiCall) -> Any:
    return chosen(call, _parameter(_one(_parameters(call))))


async def put_parameter(call: ApiCall) -> Any:
    vhost = call.ruled_vhost()
    is_new = not _parameters(call)
    (value,) = required(await call.fields(), "value")
    names = {"component": call.names["component"], "name": call.names["name"], "vhost": vhost}
    await call.change("set_parameter", **names, value=json.dumps(value))
    return CREATED if is_new else CHANGED


async def delete_parameter(call: ApiCall) -> Any:
    call.ruled_vhost()
    row = _one(_parameters(call))
    await call.change("clear_parameter", component=row["component"], name=row["name"], vhost=row["vhost"])
    return CHANGED


def _global_parameters(call: ApiCall) -> list[Row]:
    name = call.names.get("name")
    return [
        {"name": row["name"], "value": json.loads(row["value"])}
        for row in sorted(_table(call, "global_parameters"), key=lambda row: str(row["name"]))
        if name in (None, row["name"])
    ]


async def global_parameters(call: ApiCall) -> Any:
    return await listed(call, _global_parameters(call), lambda row: row)


async def global_parameter(call: ApiCall) -> Any:
    return chosen(call, _one(_global_parameters(call)))


async def put_global_parameter(call: ApiCall) -> Any:
    is_new = not _global_parameters(call)
    (value,) = required(await call.fields(), "value")
    await call.change("set_global_parameter", name=call.names["name"], value=json.dumps(value))
    return CREATED if is_new else CHANGED


async def delete_global_parameter(call: ApiCall) -> Any:
    row = _one(_global_parameters(call))
    await call.change("clear_global_parameter", name=row["name"])
    return CHANGED


async def put_cluster_name(call: ApiCall) -> Any:
    (name,) = required(await call.fields(), "name")
    await call.change("set_cluster_name", name=name)
    return CHANGED


async def enable_feature(call: ApiCall) -> Any:
    name = call.names["name"]
    if name != "all" and name not in {row["name"] for row in call.state.features}:
        raise bad_request("unsupported")
    await call.change("enable_feature_flag", name=name)
    return CHANGED


# -- limits ---

LIMITS = "vhost-limits", "limits"


def _vhost_limits(call: ApiCall, vhost: str) -> Row:
    for row in _table(call, "parameters"):
        if (row["component"], row["name"]) == LIMITS and row["vhost"] == vhost:
            value: Row = json.loads(row["value"])
            return value
    return {}


async def vhost_limits(call: ApiCall) -> Any:
    vhosts = [call.vhost()] if "vhost" in call.names else call.visible_vhosts()
    found = [{"vhost": vhost, "value": _vhost_limits(call, vhost)} for vhost in vhosts]
    return await listed(call, [row for row in found if row["value"]], lambda row: row)


async def put_vhost_limit(call: ApiCall) -> Any:
    vhost = await existing_vhost(call)
    (value,) = required(await call.fields(), "value")
    limits = {**_vhost_limits(call, vhost), call.names["name"]: value}
    await call.change("set_vhost_limits", vhost=vhost, limits=json.dumps(limits))
    return CHANGED


async def delete_vhost_limit(call: ApiCall) -> Any:
    vhost = await existing_vhost(call)
    limits = _vhost_limits(call, vhost)
    if limits.pop(call.names["name"], None) is not None:
        if limits:
            await call.change("set_vhost_limits", vhost=vhost, limits=json.dumps(limits))
        else:
            await call.change("clear_vhost_limits", vhost=vhost)
    return CHANGED


async def existing_vhost(call: ApiCall) -> str:
    """The virtual host in the path. Raises HttpError 404 if it does not exist."""
    vhost = call.names["vhost"]
    await call.find(lambda: call.state.vhosts.get(vhost))
    return vhost


async def user_limits(call: ApiCall) -> Any:
    name = call.names.get("user")
    if name is not None:
        await call.find(lambda: call.state.users.get(name))
    rows = [row for row in _table(call, "users") if name in (None, row["name"]) and row["limits"]]
    return await listed(call, rows, lambda row: {"user": row["name"], "value": dict(row["limits"])})


async def put_user_limit(call: ApiCall) -> Any:
    name = call.names["user"]
    if name not in call.state.users:
        await call.refresh()
    if name not in call.state.users:
        raise bad_request(["no_such_user", name])
    (value,) = required(await call.fields(), "value")
    await call.change("set_user_limits", user=name, limits=json.dumps({call.names["name"]: value}))
    return CHANGED


async def delete_user_limit(call: ApiCall) -> Any:
    found = await call.find(lambda: call.state.users.get(call.names["user"]))
    if call.names["name"] in dict(found["limits"]):
        await call.change("clear_user_limits", user=call.names["user"], limit=call.names["name"])
    return CHANGED
