"""One setting: its field with what it allows, the check of a value, and the error for any other value.

What must hold between several settings is checked where they are (`settings.py`).
"""

from collections.abc import Mapping
from dataclasses import field
from os import PathLike
from typing import Any

from .limits import LimitError


class SettingsError(ValueError):
    """A setting that cannot be used. `key` is its name; the text names key, value, reason and way out."""

    def __init__(self, key: str, text: str):
        super().__init__(text)
        self.key = key


def setting(default: Any, doc: str, **limits: Any) -> Any:
    """A dataclass field with its one-line meaning, which docs/embedding.md shows, and its limits.

    `low` and `high` are inclusive. `optional` allows None (`false` in TOML), which means off or unlimited. `zero`
    allows 0 below `low`. A float is greater than `above`. `choices` are the allowed strings. `text` allows no empty
    string, and `path` marks a file or directory. `read` is a function that returns the value in its final form or
    raises LimitError. A `secret` value is in no error and in no `repr`.
    """
    metadata = {"doc": doc, **limits}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata, repr=not limits.get("secret"))


def wrong(key: str, value: Any, wanted: str) -> SettingsError:
    return SettingsError(key, f"setting '{key}' is {value!r}; it must be {wanted}")


def checked(key: str, value: Any, default: Any, limits: Mapping[str, Any]) -> Any:
    """The value in its final form, in which lists from TOML are tuples. Raises `SettingsError`."""
    # TOML has no None, so a file has `false` instead.
    if value is None or (value is False and limits.get("optional")):
        if limits.get("optional"):
            return None
        raise SettingsError(key, f"setting '{key}' cannot be None; leave it out to get {default!r}")
    if "read" in limits:
        try:
            return limits["read"](value)
        except LimitError as error:
            raise wrong(key, value, error.wanted) from None
    if limits.get("path"):
        # An empty path would mean the working directory in some places, and no system has a path with a zero byte.
        if not isinstance(value, (str, PathLike)) or not str(value) or "\0" in str(value):
            raise wrong(key, value, "a path, which is not empty and has no zero byte")
        return str(value)
    if limits.get("secret") and not isinstance(value, str):
        raise SettingsError(key, f"setting '{key}' must be a text in quotes, and this is a {type(value).__name__}")
    if limits.get("text"):
        if not isinstance(value, str) or not value:
            raise wrong(key, value, "a text that is not empty")
        return value
    if key == "server_properties":
        if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
            raise wrong(key, value, "a table of texts, such as {owner = 'team-a'}")
        return dict(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise wrong(key, value, "true or false")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise wrong(key, value, f"a text, such as {default!r}")
        if value not in limits.get("choices", (value,)):
            raise wrong(key, value, f"one of: {', '.join(limits['choices'])}")
        return value
    if isinstance(default, tuple):
        return _checked_tuple(key, value, default)
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > limits["above"]:
            raise wrong(key, value, f"a number above {limits['above']}")
        if "high" in limits and not limits["low"] <= value <= limits["high"]:
            raise wrong(key, value, f"a number from {limits['low']} to {limits['high']}")
        return float(value)
    low, high = limits.get("low", 0), limits.get("high")
    wanted = (
        f"a whole number from {low}"
        + (f" to {high}" if high is not None else "")
        + (", or 0" if limits.get("zero") else "")
    )
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(key, value, wanted)
    if (value < low or (high is not None and value > high)) and not (limits.get("zero") and value == 0):
        raise wrong(key, value, wanted)
    return value


def _checked_tuple(key: str, value: Any, default: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise wrong(key, value, f"a list, such as {list(default)!r}")
    if all(isinstance(item, str) for item in default):
        if not all(isinstance(item, str) for item in value):
            raise wrong(key, value, f"a list of texts, such as {list(default)!r}")
        return tuple(value)
    if [type(item) for item in value] != [type(item) for item in default] or any(item < 0 for item in value):
        raise wrong(key, value, f"a pair such as {list(default)!r}")
    return tuple(value)


def read_path_prefix(value: Any) -> str:
    """The beginning of paths with one slash in front and none behind it; empty for none. Raises LimitError."""
    if not isinstance(value, str):
        raise LimitError(value, "a text, such as '/warren'")
    return f"/{value.strip('/')}".rstrip("/")


def check_credit(key: str, pair: tuple[int, int]) -> None:
    # FC-1: with a larger second number, the sender would run out of credit before the receiver returns any, for ever.
    initial, more_after = pair
    if pair != (0, 0) and not 0 < more_after <= initial:
        raise wrong(
            key,
            pair,
            "a pair (initial, more after) with 0 < more after <= initial, or (0, 0) to switch it off",
        )


def check_pattern(key: str, pattern: str) -> None:
    if pattern:
        from ..definitions.patterns import fault  # few nodes have a pattern, and the import takes long

        reason = fault(pattern)
        if reason:
            raise wrong(key, pattern, f"a regular expression, and this is none: {reason}")
