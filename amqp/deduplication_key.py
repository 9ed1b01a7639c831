"""The key by which a queue recognises a message that is published twice (SP-30).

It is the text of the header `x-warren-dedup` if a message has one, else its property message-id. A message with neither
has no key, and is never taken for another one. A header of another type than text counts as absent.

`deduplication_key` walks over the properties in front of the message-id by their lengths, and decodes the headers only
if the name of the header is among their bytes. `slow_deduplication_key` is the obvious twin that decodes everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from .fields import Table
from .frames import content_properties
from .properties import (
    FLAG_CLUSTER_ID,
    FLAG_CONTENT_ENCODING,
    FLAG_CONTENT_TYPE,
    FLAG_CORRELATION_ID,
    FLAG_DELIVERY_MODE,
    FLAG_EXPIRATION,
    FLAG_HEADERS,
    FLAG_MESSAGE_ID,
    FLAG_PRIORITY,
    FLAG_REPLY_TO,
    decode_properties,
    decode_some,
)

HEADER = "x-warren-dedup"

#: The header's name as it stands in a table on the wire.
_NAME = bytes((len(HEADER),)) + HEADER.encode()

#: First bytes of keys: a header and a message-id of equal text are different keys.
_FROM_HEADER, _FROM_MESSAGE_ID = b"h", b"i"

_HEADERS_OR_MESSAGE_ID = FLAG_HEADERS | FLAG_MESSAGE_ID
_BEHIND_HEADERS = (
    (FLAG_DELIVERY_MODE, False),
    (FLAG_PRIORITY, False),
    (FLAG_CORRELATION_ID, True),
    (FLAG_REPLY_TO, True),
    (FLAG_EXPIRATION, True),
)

#: By the property flags as they stand in a content: the place of a message-id that only the delivery mode and the
#: priority come before. Most clients that set a message-id set no property with text before it.
_PLACES = {
    (flags | behind).to_bytes(2, "big"): 21 + size
    for flags, size in (
        (FLAG_MESSAGE_ID, 0),
        (FLAG_MESSAGE_ID | FLAG_DELIVERY_MODE, 1),
        (FLAG_MESSAGE_ID | FLAG_PRIORITY, 1),
        (FLAG_MESSAGE_ID | FLAG_DELIVERY_MODE | FLAG_PRIORITY, 2),
    )
    for behind in range(0, FLAG_MESSAGE_ID, FLAG_CLUSTER_ID)
}


def deduplication_keys(contents: Sequence[bytes]) -> list[bytes | None]:
    """The `deduplication_key` of each content."""
    keys: list[bytes | None] = []
    for content in contents:
        at = _PLACES.get(content[19:21])
        if at is None:
            keys.append(deduplication_key(content_properties(content)))
        else:
            keys.append(_FROM_MESSAGE_ID + content[at + 1 : at + 1 + content[at]])
    return keys


def deduplication_key(props: bytes) -> bytes | None:
    """The key of a message with these encoded properties, which are sound; None if it has none."""
    flags = int.from_bytes(props[:2], "big")
    if not flags & _HEADERS_OR_MESSAGE_ID:
        return None
    at = 2
    if flags & FLAG_CONTENT_TYPE:
        at += 1 + props[at]
    if flags & FLAG_CONTENT_ENCODING:
        at += 1 + props[at]
    if flags & FLAG_HEADERS:
        end = at + 4 + int.from_bytes(props[at : at + 4], "big")
        if props.find(_NAME, at, end) >= 0:
            key = _header(decode_some(props, (HEADER.encode(),), are_sound=True)[0].headers)
            if key is not None:
                return key
        at = end
    if not flags & FLAG_MESSAGE_ID:
        return None
    for flag, is_text in _BEHIND_HEADERS:
        if flags & flag:
            at += 1 + props[at] if is_text else 1
    return _FROM_MESSAGE_ID + props[at + 1 : at + 1 + props[at]]


def slow_deduplication_key(props: bytes) -> bytes | None:
    """The same as `deduplication_key`, found by decoding all properties."""
    found = decode_properties(props)
    key = _header(found.headers)
    if key is not None:
        return key
    if found.message_id is None:
        return None
    return _FROM_MESSAGE_ID + found.message_id.encode("utf-8", "surrogateescape")


def _header(headers: Table | None) -> bytes | None:
    found = None if headers is None else headers.get(HEADER)
    return _FROM_HEADER + found[1] if found is not None and found[0] == "S" else None
