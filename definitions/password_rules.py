"""What a new password must be like: the settings of RabbitMQ's credential validators (AB-167)."""

from __future__ import annotations

from . import patterns
from .errors import DefinitionError


def check_password(password: str, min_length: int, pattern: str) -> None:
    """Raise DefinitionError for a password that is too short, or that the pattern does not match. The error text never
    contains the password.
    """
    if len(password) < min_length:
        raise DefinitionError("unavailable", f"minimum required password length is {min_length}")
    try:
        is_allowed = not pattern or patterns.found(pattern, password)
    except TimeoutError:
        raise DefinitionError(
            "unavailable",
            "the setting 'credential_validator_regexp' takes too long on the provided password; it has nested or "
            "adjacent repetitions that match the same text in many ways",
        ) from None
    if not is_allowed:
        raise DefinitionError("unavailable", "provided password does not match the validator regular expression")
