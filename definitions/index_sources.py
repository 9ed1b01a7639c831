"""The sources of the keys by which the message index finds the messages of a queue.

The policy key `message-index` has one of these values:

    none     the queue is not indexed
    id       its messages are found by their id alone
    key      also by the property message-id and by each key in the header x-keys
    a list   also by the named sources: text properties, such as correlation-id, and header:NAME
"""

from __future__ import annotations

from collections.abc import Sequence

#: The properties that may be a source.
TEXT_PROPERTIES = frozenset(
    {
        "message-id",
        "correlation-id",
        "reply-to",
        "type",
        "user-id",
        "app-id",
        "content-type",
        "content-encoding",
        "cluster-id",
        "expiration",
    }
)

_NAMED = {"none": None, "id": (), "key": ("message-id", "header:x-keys")}


def is_index_value(value: object) -> bool:
    """Whether `message-index` may have this value."""
    if isinstance(value, str):
        return value in _NAMED
    return isinstance(value, (list, tuple)) and all(isinstance(source, str) and _is_source(source) for source in value)


def _is_source(source: str) -> bool:
    return source in TEXT_PROPERTIES or source.startswith("header:") and len(source) > len("header:")


def index_sources(value: str | Sequence[str]) -> tuple[str, ...] | None:
    """The sources of a value that `is_index_value` accepts; None: the queue is not indexed."""
    return _NAMED[value] if isinstance(value, str) else tuple(value)
