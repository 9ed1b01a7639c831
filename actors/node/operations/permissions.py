"""Operations on permissions: what users may do in virtual hosts, and which routing keys they may use."""

from __future__ import annotations

from ....definitions import patterns
from ....definitions.records import Permission, Record, TopicPermission
from ...metadata.state.commands import PutRecords, RemoveRecords
from .changing import change, check_vhost, known_user, refusals
from .registry import OperationError, Operator, Rows, operation


@operation()
async def set_permissions(
    operator: Operator, *, user: str, configure: str, write: str, read: str, vhost: str = "/"
) -> None:
    """Set a user's permissions in a virtual host: three regular expressions (CM-95)."""
    _check_patterns(configure, write, read)
    await change(operator, PutRecords((Permission(user, vhost, configure, write, read),)))


@operation()
async def clear_permissions(operator: Operator, *, user: str, vhost: str = "/") -> None:
    """Take a user's permissions in a virtual host away; he can no longer open it (CM-96)."""
    _check_named(operator, user, vhost)
    await change(operator, RemoveRecords((("permissions", (user, vhost)),)))


@operation()
async def list_permissions(operator: Operator, *, vhost: str = "/") -> Rows:
    """The permissions of all users in a virtual host (CM-97)."""
    check_vhost(operator, vhost)
    found = operator.context.definitions.permissions.values()
    return [
        {"user": each.user, "configure": each.configure, "write": each.write, "read": each.read}
        for each in found
        if each.vhost == vhost
    ]


@operation()
async def list_user_permissions(operator: Operator, *, user: str) -> Rows:
    """A user's permissions in all virtual hosts (CM-98)."""
    known_user(operator, user)
    found = operator.context.definitions.permissions.values()
    return [
        {"vhost": each.vhost, "configure": each.configure, "write": each.write, "read": each.read}
        for each in found
        if each.user == user
    ]


@operation()
async def set_topic_permissions(
    operator: Operator, *, user: str, exchange: str, write: str, read: str, vhost: str = "/"
) -> None:
    """Set which routing keys a user may use with a topic exchange: two regular expressions (CM-99)."""
    _check_patterns(write, read)
    await change(operator, PutRecords((TopicPermission(user, vhost, exchange, write, read),)))


@operation()
async def clear_topic_permissions(
    operator: Operator, *, user: str, exchange: str | None = None, vhost: str = "/"
) -> None:
    """Take a user's topic permissions away, for one exchange or for all of a virtual host (CM-100)."""
    _check_named(operator, user, vhost)
    found = operator.context.definitions.topic_permissions.values()
    gone: list[Record] = [
        each for each in found if each.user == user and each.vhost == vhost and exchange in (None, each.exchange)
    ]
    await change(operator, RemoveRecords(tuple((each.table, each.key) for each in gone)))


@operation()
async def list_topic_permissions(operator: Operator, *, vhost: str = "/") -> Rows:
    """The topic permissions of all users in a virtual host (CM-101)."""
    check_vhost(operator, vhost)
    found = operator.context.definitions.topic_permissions.values()
    return [
        {"user": each.user, "exchange": each.exchange, "write": each.write, "read": each.read}
        for each in found
        if each.vhost == vhost
    ]


@operation()
async def list_user_topic_permissions(operator: Operator, *, user: str) -> Rows:
    """A user's topic permissions in all virtual hosts (CM-102)."""
    known_user(operator, user)
    found = operator.context.definitions.topic_permissions.values()
    return [
        {"vhost": each.vhost, "exchange": each.exchange, "write": each.write, "read": each.read}
        for each in found
        if each.user == user
    ]


def _check_patterns(*given: str) -> None:
    with refusals():
        for pattern in given:
            patterns.check(pattern)


def _check_named(operator: Operator, user: str, vhost: str) -> None:
    known_user(operator, user)
    if not operator.context.routing.has_vhost(vhost):
        raise OperationError("unavailable", f"Virtual host {vhost} does not exist")
