"""Limits of virtual hosts and of users (AB-172): the checks when one is set, and its value.

A limit is a number; a negative one is no limit, 0 allows nothing. The limits of a virtual host are the value of its
parameter `limits` of the component `vhost-limits`, as in RabbitMQ; those of a user belong to the user.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import DefinitionError
from .json_text import erlang_term, parse_json

VHOST_LIMITS = "vhost-limits", "limits"

MAX_QUEUES = "max-queues"
VHOST_LIMIT_NAMES = ("max-connections", MAX_QUEUES)
USER_LIMIT_NAMES = ("max-channels", "max-connections")


def vhost_limits(text: str) -> dict[str, int]:
    """The limits in this JSON object. Raises DefinitionError."""
    try:
        return _limits(text, VHOST_LIMIT_NAMES, "limits")
    except DefinitionError as error:
        if error.text.startswith("JSON"):
            raise
        raise DefinitionError(error.kind, f"Validation failed\n\n{error.text}\n") from None


def user_limits(text: str) -> dict[str, int]:
    """The limits in this JSON object. Raises DefinitionError."""
    return _limits(text, USER_LIMIT_NAMES, "user-limits")


def _limits(text: str, names: tuple[str, ...], what: str) -> dict[str, int]:
    given = parse_json(text)
    if not isinstance(given, Mapping):
        raise DefinitionError("unavailable", f"{what} should be a JSON object, actually was {erlang_term(given)}")
    unknown = [f"{{{erlang_term(name)},{erlang_term(value)}}}" for name, value in given.items() if name not in names]
    for name in names:
        if name in given and type(given[name]) is not int:
            raise DefinitionError("unavailable", f"{name} should be a number, actually was {erlang_term(given[name])}")
    if unknown:
        known = ", ".join(names)
        raise DefinitionError("unavailable", f"Unrecognised terms [{','.join(unknown)}] in {what}. Known are: {known}")
    return dict(given)
