"""`Access`: what one user may do in one virtual host (AB-161 to AB-164).

Permissions are checked at each operation of a client, not when it connects. Granted requests are remembered until the
definitions change, so a permission that is revoked has no effect from that moment, on open channels too. A publisher's
messages cost no check, because channels remember what a publish means until the routing table's version changes, and a
change of definitions changes that version too.
"""

from __future__ import annotations

from typing import Literal

from ..amqp.constants import ACCESS_REFUSED
from ..amqp.errors import AmqpError
from . import patterns
from .definitions import Definitions

Right = Literal["configure", "write", "read"]
Kind = Literal["exchange", "queue"]

#: The name under which permissions on the default exchange are given.
DEFAULT_EXCHANGE = "amq.default"

#: Replaces an empty pattern, which allows the empty name only (AB-162).
NO_NAME = "^$"

#: How many granted requests are remembered. A client that declares a new queue for each of its requests adds one each.
REMEMBERED = 64


class Access:
    """The rights of `user`, who opened `vhost`. The broker itself, which has no user, may do everything."""

    __slots__ = ("_allowed", "_definitions", "_user", "_version", "_vhost")

    def __init__(self, definitions: Definitions, user: str | None, vhost: str) -> None:
        self._definitions = definitions
        self._user = user
        self._vhost = vhost
        self._version = -1
        #: Requests that were granted. A dict without values, because each channel has one, and an empty set takes 216
        #: bytes instead of 64.
        self._allowed: dict[tuple[str, ...], None] = {}

    @property
    def user(self) -> str:
        """The name of the user; empty for the broker itself."""
        return self._user or ""

    def check(self, right: Right, kind: Kind, name: str) -> None:
        """Raise AmqpError 403 unless the user has this right on an exchange or a queue."""
        request = right, kind, name
        if self._is_known(request):
            return
        name = name or DEFAULT_EXCHANGE
        permission = self._definitions.permission(self._user or "", self._vhost)
        if permission is None or not patterns.matches(getattr(permission, right) or NO_NAME, name):
            raise self._refused(f"{kind} '{name}' in vhost '{self._vhost}'")
        self._allowed[request] = None

    def check_topic(self, right: Right, exchange: str, routing_key: str) -> None:
        """Raise AmqpError 403 if the user may not use this key with a topic exchange. No topic permission allows all.

        The variables `{username}` and `{vhost}` of the pattern are replaced by text, as in RabbitMQ: what is special
        in a regular expression stays special.
        """
        found = self._definitions.topic_permissions.get((self._user or "", self._vhost, exchange))
        request = right, "topic", exchange, routing_key
        if found is None or self._is_known(request):
            return
        pattern: str = getattr(found, right) or NO_NAME
        for variable, value in (("{username}", found.user), ("{vhost}", found.vhost)):
            pattern = pattern.replace(variable, value)
        if not patterns.matches(pattern, routing_key):
            raise self._refused(f"topic '{routing_key}' in exchange '{exchange}' in vhost '{self._vhost}'")
        self._allowed[request] = None

    def may_impersonate(self) -> bool:
        """Whether the user may publish messages with the user-id of another one (AB-106)."""
        user = self._definitions.user(self._user or "")
        return user is not None and "impersonator" in user.tags

    def _is_known(self, request: tuple[str, ...]) -> bool:
        """Whether this was allowed before, and nothing has changed since."""
        if self._user is None:
            return True
        if self._version != self._definitions.version or len(self._allowed) >= REMEMBERED:
            self._allowed.clear()
            self._version = self._definitions.version
        return request in self._allowed

    def _refused(self, resource: str) -> AmqpError:
        return AmqpError(ACCESS_REFUSED, f"access to {resource} refused for user '{self._user}'")
