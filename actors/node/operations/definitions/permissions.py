"""Operations on permissions: what users may do in virtual hosts, and which routing keys they may use."""

from __future__ import annotations

from collections.abc import Mapping

from .....definitions import patterns
from .....definitions.records import Permission, Record, RecordKey, TopicPermission
from ....metadata.state.commands import PutRecords, RemoveRecords
from ..registry import OperationError, Operator, Rows, check_vhost, operation
from .changing import change, known_user, refusals
from .lockout import Lockout


@operation()
async def set_permissions(
    operator: Operator, *, user: str, configure: str, write: str, read: str, vhost: str = "/"
) -> str | None:
    """Set a user's permissions in a virtual host: three regular expressions (CM-95).

    Answered with a warning if no administrator has permissions there any more.
    """
    _check_patterns(configure, write, read)
    lockout = Lockout(operator, vhost)
    await change(operator, PutRecords((Permission(user, vhost, configure, write, read),)))
    return lockout.warning()


@operation()
async def clear_permissions(operator: Operator, *, user: str, vhost: str = "/") -> str | None:
    """Take a user's permissions in a virtual host away; he can no longer open it (CM-96).

    Answered with a warning if no administrator has permissions there any more.
    """
    _check_named(operator, user, vhost)
    lockout = Lockout(operator, vhost)
    await change(operator, RemoveRecords((("permissions", (user, vhost)),)))
    return lockout.warning()


@operation()
async def list_permissions(operator: Operator, *, vhost: str = "/") -> Rows:
    """The permissions of all users in a virtual host (CM-97)."""
    check_vhost(operator, vhost)
    return _listed(operator.context.definitions.permissions, ("user", "configure", "write", "read"), vhost=vhost)


@operation()
async def list_user_permissions(operator: Operator, *, user: str) -> Rows:
    """A user's permissions in all virtual hosts (CM-98)."""
    known_user(operator, user)
    return _listed(operator.context.definitions.permissions, ("vhost", "configure", "write", "read"), user=user)


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
    return _listed(operator.context.definitions.topic_permissions, ("user", "exchange", "write", "read"), vhost=vhost)


@operation()
async def list_user_topic_permissions(operator: Operator, *, user: str) -> Rows:
    """A user's topic permissions in all virtual hosts (CM-102)."""
    known_user(operator, user)
    return _listed(operator.context.definitions.topic_permissions, ("vhost", "exchange", "write", "read"), user=user)


def _listed(records: Mapping[RecordKey, Permission | TopicPermission], columns: tuple[str, ...], **wanted: str) -> Rows:
    """The columns of the records whose fields have the `wanted` values."""
    return [
        {name: getattr(record, name) for name in columns}
        for record in records.values()
        if all(getattr(record, name) == value for name, value in wanted.items())
    ]


def _check_patterns(*given: str) -> None:
    with refusals():
        for pattern in given:
            patterns.check(pattern)


def _check_named(operator: Operator, user: str, vhost: str) -> None:
    known_user(operator, user)
    if not operator.context.routing.has_vhost(vhost):
        raise OperationError("unavailable", f"Virtual host {vhost} does not exist")
