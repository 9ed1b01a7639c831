"""Warnings when a change of users or permissions leaves nobody who can administer the node or a virtual host.

The change is made all the same, as RabbitMQ does: the owner of the node can undo it by a command.
"""

from __future__ import annotations

import logging

from .....definitions.records import Permission
from ..registry import Operator

log = logging.getLogger("warren.node")


class Lockout:
    """Finds the administrators before a change; `warning` compares them with those after it."""

    def __init__(self, operator: Operator, vhost: str | None = None) -> None:
        """With `vhost`, only administrators who have permissions in that virtual host count."""
        self._operator = operator
        self._vhost = vhost
        self._before = self._administrators()

    def warning(self) -> str | None:
        """A text for the operator, which is logged too, if the change took the last administrator away."""
        if not self._before or self._administrators():
            return None
        left = [name for name in sorted(self._before) if self._operator.context.definitions.user(name) is not None]
        some = left[0] if left else "NAME"
        if self._vhost is None:
            password = f"'warren change_password {some}'" if left else "'warren add_user NAME'"
            text = (
                "no user with the tag 'administrator' can log in with a password any more. The owner of the node can "
                f"help: {password} and 'warren set_user_tags {some} administrator'"
            )
        else:
            text = (
                f"no administrator has permissions in virtual host '{self._vhost}' any more. The owner of the node can "
                f"help: warren set_permissions -p '{self._vhost}' {some} '.*' '.*' '.*'"
            )
        log.warning("%s", text)
        return text

    def _administrators(self) -> set[str]:
        definitions = self._operator.context.definitions
        found = {user.name for user in definitions.users.values() if _is_administrator(user.tags, user.password_hash)}
        if self._vhost is not None:
            found &= {
                each.user for each in definitions.permissions.values() if each.vhost == self._vhost and _allows(each)
            }
        return found


def _is_administrator(tags: tuple[str, ...], password_hash: str) -> bool:
    return "administrator" in tags and bool(password_hash)


def _allows(permission: Permission) -> bool:
    """Whether the permissions allow anything: an empty pattern, and one for the empty name alone, allow nothing."""
    return not {permission.configure, permission.write, permission.read} <= {"", "^$"}
