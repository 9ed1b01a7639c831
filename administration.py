"""`Administration`: the part of `Broker` that sets users, permissions, policies and limits, and finds messages.

The methods perform the operations that the command line performs too, under RabbitMQ's names
(`actors/node/operations`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .running_node import RunningNode
from .settings import Settings


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A policy, or an operator policy."""

    name: str
    vhost: str
    pattern: str
    apply_to: str
    definition: Mapping[str, Any]
    priority: int


class Administration:
    """The methods of `Broker` for operators. `vhost=None` is the default virtual host.

    A refusal is raised as a `BrokerError` 530 with its reason.
    """

    settings: Settings

    @property
    def _node(self) -> RunningNode:
        raise NotImplementedError

    # -- users ---

    def users(self) -> dict[str, list[str]]:
        """The names of all users, with their tags."""
        return {row["user"]: row["tags"] for row in self._node.operate("list_users")}

    def add_user(self, name: str, password: str, *, tags: Iterable[str] = ()) -> None:
        """Add a user, who may open a virtual host once he has permissions there."""
        self._node.operate("add_user", user=name, password=password, tags=list(tags))

    def delete_user(self, name: str) -> None:
        """Delete a user with his permissions; his connections are closed with 320."""
        self._node.operate("delete_user", user=name)

    def change_password(self, name: str, password: str) -> None:
        """Give a user another password. His open connections stay open."""
        self._node.operate("change_password", user=name, password=password)

    def set_user_tags(self, name: str, tags: Iterable[str]) -> None:
        """Replace a user's tags. With `impersonator` he may publish messages with the user-id of another one."""
        self._node.operate("set_user_tags", user=name, tags=list(tags))

    def set_user_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Limit `max-connections` and `max-channels` of a user; -1 is no limit. Limits that are not named stay."""
        self._node.operate("set_user_limits", user=name, limits=json.dumps(dict(limits)))

    # -- permissions ---

    def set_permissions(
        self, user: str, *, configure: str = ".*", write: str = ".*", read: str = ".*", vhost: str | None = None
    ) -> None:
        """Set what a user may do in a virtual host: regular expressions on names of queues and exchanges.

        They are searched anywhere in the name; an empty one allows nothing. They are in effect at once, on open
        connections too.
        """
        names = {"configure": configure, "write": write, "read": read}
        self._node.operate("set_permissions", user=user, vhost=self._vhost_name(vhost), **names)

    def clear_permissions(self, user: str, *, vhost: str | None = None) -> None:
        """Take a user's permissions in a virtual host away: he can no longer open it."""
        self._node.operate("clear_permissions", user=user, vhost=self._vhost_name(vhost))

    def set_topic_permissions(
        self, user: str, exchange: str, *, write: str = ".*", read: str = ".*", vhost: str | None = None
    ) -> None:
        """Set with which routing keys a user may publish to a topic exchange (`write`) and bind to it (`read`)."""
        self._node.operate(
            "set_topic_permissions",
            user=user,
            exchange=exchange,
            write=write,
            read=read,
            vhost=self._vhost_name(vhost),
        )

    def clear_topic_permissions(self, user: str, exchange: str | None = None, *, vhost: str | None = None) -> None:
        """Let a user use all routing keys again, with one exchange or with all."""
        self._node.operate("clear_topic_permissions", user=user, exchange=exchange, vhost=self._vhost_name(vhost))

    # -- policies ---

    def policies(self, *, operator: bool = False, vhost: str | None = None) -> list[PolicyInfo]:
        """The policies of a virtual host, or its operator policies."""
        operation = "list_operator_policies" if operator else "list_policies"
        return [
            PolicyInfo(
                row["name"],
                row["vhost"],
                row["pattern"],
                row["apply-to"],
                json.loads(row["definition"]),
                row["priority"],
            )
            for row in self._node.operate(operation, vhost=self._vhost_name(vhost))
        ]

    def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        *,
        priority: int = 0,
        apply_to: Literal["queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all"] = "all",
        operator: bool = False,
        vhost: str | None = None,
    ) -> None:
        """Set a policy: queues and exchanges whose names the pattern matches follow it, those that exist as well.

        Of several policies the one with the highest priority applies. An operator policy sets upper limits for policies
        and arguments: the smaller number applies.
        """
        self._node.operate(
            "set_operator_policy" if operator else "set_policy",
            name=name,
            pattern=pattern,
            definition=json.dumps(dict(definition)),
            priority=priority,
            apply_to=apply_to,
            vhost=self._vhost_name(vhost),
        )

    def clear_policy(self, name: str, *, operator: bool = False, vhost: str | None = None) -> None:
        """Remove a policy, or an operator policy."""
        operation = "clear_operator_policy" if operator else "clear_policy"
        self._node.operate(operation, name=name, vhost=self._vhost_name(vhost))

    # -- messages ---

    def query(
        self,
        *,
        queue: str | Iterable[str],
        key: str,
        begin: int | None = None,
        end: int | None = None,
        max_num: int = 32,
        vhost: str | None = None,
    ) -> list[dict[str, Any]]:
        """The messages of one or more queues that have this key, the newest first, even if they have left the queue.

        Only queues with `message-index` in their policy are indexed. `begin` and `end` are in ms since the epoch; by
        default messages are found that were stored in the last three days. Each message is a dict with `queue`, `seq`,
        `id`, `stored_at`, `state` and, while it is in the queue, `properties` and `payload`.
        """
        queues = [queue] if isinstance(queue, str) else list(queue)
        arguments = {"queues": queues, "key": key, "begin": begin, "end": end, "max_num": max_num}
        return self._found(vhost, arguments)

    def find(self, id: str, *, vhost: str | None = None) -> list[dict[str, Any]]:
        """The messages with an id that `query` has shown, or with this property message-id."""
        return self._found(vhost, {"id": id})

    def _found(self, vhost: str | None, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._node.operate("query_message", vhost=self._vhost_name(vhost), **arguments)[
            "messages"
        ]
        return found

    # -- limits ---

    def set_vhost_limits(self, limits: Mapping[str, int], *, vhost: str | None = None) -> None:
        """Limit `max-connections` and `max-queues` of a virtual host; -1 is no limit. Replaces all that it had."""
        self._node.operate("set_vhost_limits", limits=json.dumps(dict(limits)), vhost=self._vhost_name(vhost))

    def _vhost_name(self, vhost: str | None) -> str:
        return self.settings.default_vhost if vhost is None else vhost
