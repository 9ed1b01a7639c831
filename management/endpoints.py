"""The endpoints of the API (cli-and-management section 12), and the search for the one that fits a request's path.

A path is a pattern of segments; `:name` stands for any text, which the handler finds decoded in `ApiCall.names`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from .access import Who
from .call import ApiCall
from .handlers import acting, definitions, events, health, logins, own, reading
from .handlers import set_by_operators as setting

Handler = Callable[[ApiCall], Awaitable[Any]]

#: Any client may use the endpoint, even without a login.
ANYBODY = None


class Endpoint(NamedTuple):
    """By method: which tag its user needs, and the handler."""

    methods: dict[str, tuple[Who | None, Handler]]


def _get(who: Who | None, get: Handler, **others: tuple[Who | None, Handler]) -> Endpoint:
    return Endpoint({"GET": (who, get), **others})


M: Who = "management"
P: Who = "policymaker"
O: Who = "monitoring"  # noqa: E741
A: Who = "administrator"


def _policies(get: Callable[..., Awaitable[Any]], is_operator: bool, **others: tuple[Who, Any]) -> Endpoint:
    """An endpoint for policies, or for operator policies."""
    methods = {"GET": (M, get), **others}
    return Endpoint(
        {name: (who, partial(handler, is_operator=is_operator)) for name, (who, handler) in methods.items()}
    )


#: With an exchange in the path, clients such as rabbit-hole clear the permission for that one.
_TOPIC_PERMISSION = _get(
    A,
    setting.user_topic_permissions,
    PUT=(A, setting.put_topic_permission),
    DELETE=(A, setting.delete_topic_permission),
)

ENDPOINTS: dict[str, Endpoint] = {
    "overview": _get(M, reading.overview),
    "cluster-name": _get(M, reading.cluster_name, PUT=(A, setting.put_cluster_name)),
    "nodes": _get(O, reading.nodes),
    "nodes/:node": _get(O, reading.node),
    "nodes/:node/memory": _get(O, reading.node_memory),
    "nodes/:node/memory/relative": _get(O, reading.node_memory_relative),
    "extensions": _get(M, reading.extensions),
    "definitions": _get(A, definitions.definitions, POST=(A, definitions.import_definitions)),
    "definitions/:vhost": _get(A, definitions.definitions, POST=(A, definitions.import_definitions)),
    "all-configuration": _get(A, definitions.definitions, POST=(A, definitions.import_definitions)),
    "connections": _get(M, reading.connections),
    "vhosts/:vhost/connections": _get(M, reading.connections),
    "connections/:name": _get(M, reading.connection, DELETE=(M, acting.delete_connection)),
    "connections/username/:user": _get(M, reading.connections, DELETE=(M, acting.delete_user_connections)),
    "connections/:name/channels": _get(M, reading.channels),
    "channels": _get(M, reading.channels),
    "vhosts/:vhost/channels": _get(M, reading.channels),
    "channels/:name": _get(M, reading.channel),
    "consumers": _get(M, reading.consumers),
    "consumers/:vhost": _get(M, reading.consumers),
    "exchanges": _get(M, reading.exchanges),
    "exchanges/:vhost": _get(M, reading.exchanges),
    "exchanges/:vhost/:exchange": _get(
        M, reading.exchange, PUT=(M, acting.put_exchange), DELETE=(M, acting.delete_exchange)
    ),
    "exchanges/:vhost/:exchange/bindings/source": _get(M, reading.exchange_source),
    "exchanges/:vhost/:exchange/bindings/destination": _get(M, reading.exchange_destination),
    "exchanges/:vhost/:exchange/publish": Endpoint({"POST": (M, acting.publish)}),
    "queues": _get(M, reading.queues),
    "queues/:vhost": _get(M, reading.queues),
    "queues/:vhost/:queue": _get(M, reading.queue, PUT=(M, acting.put_queue), DELETE=(M, acting.delete_queue)),
    "queues/:vhost/:queue/bindings": _get(M, reading.queue_bindings),
    "queues/:vhost/:queue/contents": Endpoint({"DELETE": (M, acting.purge_queue)}),
    "queues/:vhost/:queue/get": Endpoint({"POST": (M, acting.get_messages)}),
    "queues/:vhost/:queue/move": Endpoint({"POST": (M, acting.move_messages)}),
    "queues/:vhost/:queue/actions": Endpoint({"POST": (A, acting.queue_action)}),
    "bindings": _get(M, reading.bindings),
    "bindings/:vhost": _get(M, reading.bindings),
    "bindings/:vhost/e/:exchange/q/:queue": _get(M, reading.bindings_between, POST=(M, acting.put_binding)),
    "bindings/:vhost/e/:exchange/e/:destination": _get(M, reading.bindings_between, POST=(M, acting.put_binding)),
    "bindings/:vhost/e/:exchange/q/:queue/:props": _get(M, reading.binding, DELETE=(M, acting.delete_binding)),
    "bindings/:vhost/e/:exchange/e/:destination/:props": _get(M, reading.binding, DELETE=(M, acting.delete_binding)),
    "vhosts": _get(M, reading.vhosts),
    "vhosts/:vhost": _get(A, reading.vhost, PUT=(A, setting.put_vhost), DELETE=(A, setting.delete_vhost)),
    "vhosts/:vhost/permissions": _get(A, setting.permissions),
    "vhosts/:vhost/topic-permissions": _get(A, setting.topic_permissions),
    "vhosts/:vhost/start/:node": Endpoint({"POST": (A, setting.start_vhost)}),
    "users": _get(A, setting.users),
    "users/without-permissions": _get(A, setting.users_without_permissions),
    "users/bulk-delete": Endpoint({"POST": (A, setting.delete_users)}),
    "users/:user": _get(A, setting.user, PUT=(A, setting.put_user), DELETE=(A, setting.delete_user)),
    "users/:user/permissions": _get(A, setting.permissions),
    "users/:user/topic-permissions": _get(A, setting.topic_permissions),
    "permissions": _get(A, setting.permissions),
    "permissions/:vhost/:user": _get(
        A, setting.permission, PUT=(A, setting.put_permission), DELETE=(A, setting.delete_permission)
    ),
    "topic-permissions": _get(A, setting.topic_permissions),
    "topic-permissions/:vhost/:user": _TOPIC_PERMISSION,
    "topic-permissions/:vhost/:user/:exchange": _TOPIC_PERMISSION,
    "whoami": _get(M, reading.whoami),
    "vhost-limits": _get(M, setting.vhost_limits),
    "vhost-limits/:vhost": _get(M, setting.vhost_limits),
    "vhost-limits/:vhost/:name": Endpoint(
        {"PUT": (A, setting.put_vhost_limit), "DELETE": (A, setting.delete_vhost_limit)}
    ),
    "user-limits": _get(A, setting.user_limits),
    "user-limits/:user": _get(A, setting.user_limits),
    "user-limits/:user/:name": Endpoint({"PUT": (A, setting.put_user_limit), "DELETE": (A, setting.delete_user_limit)}),
    "parameters": _get(M, setting.parameters),
    "parameters/:component": _get(M, setting.parameters),
    "parameters/:component/:vhost": _get(M, setting.parameters),
    "parameters/:component/:vhost/:name": _get(
        M, setting.parameter, PUT=(P, setting.put_parameter), DELETE=(P, setting.delete_parameter)
    ),
    "global-parameters": _get(P, setting.global_parameters),
    "global-parameters/:name": _get(
        P, setting.global_parameter, PUT=(A, setting.put_global_parameter), DELETE=(A, setting.delete_global_parameter)
    ),
    "policies": _policies(setting.policies, False),
    "policies/:vhost": _policies(setting.policies, False),
    "policies/:vhost/:name": _policies(
        setting.policy, False, PUT=(P, setting.put_policy), DELETE=(P, setting.delete_policy)
    ),
    "operator-policies": _policies(setting.policies, True),
    "operator-policies/:vhost": _policies(setting.policies, True),
    "operator-policies/:vhost/:name": _policies(
        setting.policy, True, PUT=(A, setting.put_policy), DELETE=(A, setting.delete_policy)
    ),
    "aliveness-test/:vhost": _get(M, health.aliveness),
    "healthchecks/node": _get(M, health.node_is_healthy),
    "healthchecks/node/:node": _get(M, health.node_is_healthy),
    "health/checks/alarms": _get(M, health.alarms),
    "health/checks/local-alarms": _get(M, health.local_alarms),
    "health/checks/virtual-hosts": _get(M, health.virtual_hosts),
    "health/checks/node-is-mirror-sync-critical": _get(M, health.mirror_sync_critical),
    "health/checks/node-is-quorum-critical": _get(M, health.quorum_critical),
    "health/checks/certificate-expiration/:within/:unit": _get(M, health.certificate_expiration),
    "health/checks/port-listener/:port": _get(M, health.port_listener),
    "health/checks/protocol-listener/:protocol": _get(M, health.protocol_listener),
    "rebalance/queues": Endpoint({"POST": (A, acting.rebalance)}),
    "reset": Endpoint({"DELETE": (A, acting.reset)}),
    "reset/:node": Endpoint({"DELETE": (A, acting.reset)}),
    "auth": _get(ANYBODY, reading.auth),
    "auth/attempts/:node": _get(O, logins.attempts, DELETE=(O, logins.forget_attempts)),
    "auth/attempts/:node/source": _get(O, logins.sources, DELETE=(O, logins.forget_sources)),
    "login": _get(ANYBODY, reading.logged_in, POST=(ANYBODY, reading.login), DELETE=(ANYBODY, reading.logout)),
    # warren's own
    "events": _get(M, events.events),
    "flow": _get(O, own.flow),
    "flow/:connection": _get(O, own.flow_chain),
    "rings": _get(O, own.rings),
    "rings/:vhost": _get(O, own.rings),
    "rings/:vhost/:queue": _get(O, own.ring),
    "recent-events": _get(O, own.recent_events),
    "groups": _get(O, own.groups),
    "groups/:vhost": _get(O, own.groups),
    "nodes/:node/environment": _get(A, own.environment),
    "nodes/:node/log": _get(A, own.log),
    "route/:vhost/:exchange": _get(M, own.route),
    "messages/:vhost": _get(A, own.messages),
    "messages/:vhost/by-number/:queue": _get(M, acting.browse_messages),
    "messages/:vhost/by-id/:id": _get(A, own.messages),
    "feature-flags": _get(A, reading.feature_flags),
    "feature-flags/:name/enable": Endpoint({"PUT": (A, setting.enable_feature)}),
}


class _Branch:
    """The endpoints whose paths begin alike. A literal segment fits before a name does."""

    __slots__ = ("any_name", "endpoint", "literal", "name")

    def __init__(self) -> None:
        self.literal: dict[str, _Branch] = {}
        self.any_name: dict[str, _Branch] = {}
        self.endpoint: Endpoint | None = None
        self.name = ""


def _tree() -> _Branch:
    root = _Branch()
    for path, endpoint in ENDPOINTS.items():
        branch = root
        for segment in path.split("/"):
            children = branch.any_name if segment.startswith(":") else branch.literal
            branch = children.setdefault(segment.removeprefix(":"), _Branch())
        branch.endpoint = endpoint
    return root


_ROOT = _tree()


def find(raw_path: str) -> tuple[Endpoint, dict[str, str]] | None:
    """The endpoint of a path below `/api/`, as the client sent it, and the names in it; None if there is none."""
    segments = raw_path.split("/")
    if segments and not segments[-1]:
        segments.pop()  # a slash behind a collection is accepted (CM-231)
    return _find(_ROOT, segments, {})


def _find(branch: _Branch, segments: list[str], names: dict[str, str]) -> tuple[Endpoint, dict[str, str]] | None:
    if not segments:
        return None if branch.endpoint is None else (branch.endpoint, names)
    first, rest = segments[0], segments[1:]
    child = branch.literal.get(first)
    if child is not None:
        found = _find(child, rest, names)
        if found is not None:
            return found
    if first:
        for name, other in branch.any_name.items():
            found = _find(other, rest, {**names, name: unquote(first, errors="surrogateescape")})
            if found is not None:
                return found
    return None
