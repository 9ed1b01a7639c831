"""Operations on users: passwords, tags and limits.

Passwords are never in a text or a log. The texts of refusals are RabbitMQ's.
"""

from __future__ import annotations

from .....definitions.json_text import json_text
from .....definitions.limits import USER_LIMIT_NAMES, user_limits
from .....definitions.password_rules import check_password
from .....definitions.passwords import SALT_BYTES, SHA256, check_hash, hashed, is_password
from .....definitions.records import User
from ....metadata.state.commands import ChangeUser, PutRecords, RemoveRecords
from ..registry import OperationError, Operator, Rows, operation
from .changing import change, known_user, refusals
from .lockout import Lockout


@operation()
async def add_user(
    operator: Operator,
    *,
    user: str,
    password: str | None = None,
    password_hash: str | None = None,
    hashing_algorithm: str = SHA256,
    tags: list[str] | None = None,
) -> None:
    """Add a user, who may open no virtual host yet (CM-80).

    password        an empty one adds a user who cannot log in with a password, but with a certificate
    password_hash   a hash in RabbitMQ's format, instead of a password (CM-90)
    """
    if not user:
        raise OperationError("data", "user cannot be an empty string")
    if password_hash is not None:
        with refusals():
            check_hash(password_hash, hashing_algorithm)
    elif password is not None:
        password_hash = _hashed(operator, password)
    else:
        raise OperationError("data", "a user needs a password or a password hash")
    record = User(user, password_hash, hashing_algorithm, _tags(tags or []))
    await change(operator, PutRecords((record,), is_new=True))


@operation()
async def put_user(
    operator: Operator,
    *,
    user: str,
    password: str,
    password_hash: str,
    hashing_algorithm: str,
    tags: list[str],
) -> None:
    """Add a user or replace his password and tags (CM-287). If `password` and `password_hash` are empty, he has no
    password to log in with.
    """
    if not user:
        raise OperationError("data", "user cannot be an empty string")
    if password:
        password_hash, hashing_algorithm = _hashed(operator, password), SHA256
    else:
        with refusals():
            check_hash(password_hash, hashing_algorithm)
    known = operator.context.definitions.user(user)
    limits = () if known is None else known.limits
    await change(operator, PutRecords((User(user, password_hash, hashing_algorithm, _tags(tags), limits),)))


@operation()
async def delete_user(operator: Operator, *, user: str) -> str | None:
    """Delete a user with his permissions, and close his connections (CM-81).

    Answered with a warning if no administrator is left.
    """
    known_user(operator, user)
    lockout = Lockout(operator)
    await change(operator, RemoveRecords((("users", (user,)),)))
    return lockout.warning()


@operation()
async def change_password(operator: Operator, *, user: str, password: str) -> str | None:
    """Give a user another password; connections that are open stay so (CM-82). With an empty one he can no longer log
    in with a password.

    Answered with a warning if no administrator is left.
    """
    known_user(operator, user)
    lockout = Lockout(operator)
    values = ("password_hash", _hashed(operator, password)), ("hashing_algorithm", SHA256)
    await change(operator, ChangeUser(user, values))
    return lockout.warning()


@operation()
async def clear_password(operator: Operator, *, user: str) -> str | None:
    """Take a user's password away: he can no longer log in with one (CM-83).

    Answered with a warning if no administrator is left.
    """
    known_user(operator, user)
    lockout = Lockout(operator)
    await change(operator, ChangeUser(user, (("password_hash", ""),)))
    return lockout.warning()


@operation()
async def authenticate_user(operator: Operator, *, user: str, password: str) -> None:
    """Check a user's password; a wrong one is refused (CM-84)."""
    found = operator.context.definitions.user(user)
    if found is None or not is_password(password, found.password_hash, found.hashing_algorithm):
        raise OperationError(
            "data", f'Error: failed to authenticate user "{user}"', (f"user '{user}' - invalid credentials",)
        )


@operation()
async def set_user_tags(operator: Operator, *, user: str, tags: list[str]) -> str | None:
    """Replace a user's tags (CM-85).

    Answered with a warning if no administrator is left.
    """
    known_user(operator, user)
    lockout = Lockout(operator)
    await change(operator, ChangeUser(user, (("tags", _tags(tags)),)))
    return lockout.warning()


@operation()
async def list_users(operator: Operator) -> Rows:
    """All users with their tags (CM-86)."""
    return [{"user": user.name, "tags": list(user.tags)} for user in operator.context.definitions.users.values()]


@operation()
async def set_user_limits(operator: Operator, *, user: str, limits: str) -> None:
    """Set limits of a user: a JSON object; limits that it does not name stay (CM-87)."""
    found = known_user(operator, user)
    with refusals():
        merged = {**dict(found.limits), **user_limits(limits)}
    await change(operator, ChangeUser(user, (("limits", tuple(sorted(merged.items()))),)))


@operation()
async def clear_user_limits(operator: Operator, *, user: str, limit: str) -> None:
    """Remove one limit of a user, or `all` (CM-88)."""
    found = known_user(operator, user)
    if limit != "all" and limit not in USER_LIMIT_NAMES:
        raise OperationError(
            "unavailable", f"unknown limit '{limit}'; it is one of: {', '.join(USER_LIMIT_NAMES)}, all"
        )
    kept = tuple(each for each in found.limits if limit not in ("all", each[0]))
    await change(operator, ChangeUser(user, (("limits", kept),)))


@operation()
async def list_user_limits(operator: Operator, *, user: str | None = None) -> Rows:
    """The limits of one user, or of all who have any, as JSON objects (CM-89)."""
    users = operator.context.definitions.users.values() if user is None else [known_user(operator, user)]
    return [{"user": each.name, "limits": json_text(dict(each.limits))} for each in users if each.limits or user]


def _hashed(operator: Operator, password: str) -> str:
    """The hash of a new password, which is empty for an empty password, because nobody can log in with that.

    Raises OperationError for a password that the validators refuse (AB-167).
    """
    settings = operator.context.settings
    with refusals():
        check_password(password, settings.credential_validator_min_length, settings.credential_validator_regexp)
    return hashed(password, operator.process.random_bytes(SALT_BYTES)) if password else ""


def _tags(given: list[str]) -> tuple[str, ...]:
    """Tags are separated by blanks or commas."""
    return tuple(dict.fromkeys(tag for text in given for tag in text.replace(",", " ").split()))
