"""The keys under which the message index finds a message, and its **warren id**.

The sources of keys are what a policy names: `message-id` and the other text properties, or `header:NAME`. The header
`x-keys` has several keys, separated by blanks or as an array of texts. Any other header is one key; a number or a
boolean becomes a text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from ...amqp.fields import Table
from ...amqp.properties import Properties, decode_properties

#: Keys of one message that are indexed, and the bytes of each, at most.
MOST_KEYS = 16
MOST_KEY_BYTES = 255

_KEYS_HEADER = "x-keys"

_ID_TAIL = Struct(">IQ")


class WarrenId(NamedTuple):
    """The id of a message in an index: where the node that stores it is, and its position there.

    Every node writes the address 127.0.0.1 and the port 0 (`local_id`), so an id does not name a node of a cluster.
    """

    address: str
    port: int
    position: int

    def __str__(self) -> str:
        packed = ipaddress.ip_address(self.address).packed + _ID_TAIL.pack(self.port, self.position)
        return packed.hex().upper()

    @classmethod
    def decoded(cls, text: str) -> WarrenId | None:
        """The id that `text` shows, in upper or lower case; None if it does not have the form of an id."""
        if re.fullmatch("(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})", text) is None:
            return None
        packed = bytes.fromhex(text)
        port, position = _ID_TAIL.unpack(packed[-_ID_TAIL.size :])
        if port > 65_535:
            return None
        return cls(str(ipaddress.ip_address(packed[: -_ID_TAIL.size])), port, position)


def local_id(position: int) -> str:
    """The id of a message at this position in an index of this node."""
    return str(WarrenId("127.0.0.1", 0, position))


def keys_of(props: bytes, sources: Iterable[str]) -> list[bytes]:
    """The keys that encoded properties have in these sources, each once. What exceeds the limits is left out."""
    found: dict[bytes, None] = {}
    properties = decode_properties(props)
    for source in sources:
        for key in _texts(properties, source):
            if key and len(key) <= MOST_KEY_BYTES and len(found) < MOST_KEYS:
                found[key] = None
    return list(found)


def _texts(properties: Properties, source: str) -> Iterator[bytes]:
    if not source.startswith("header:"):
        text = getattr(properties, source.replace("-", "_"))
        if text is not None:
            yield text.encode("utf-8", "surrogateescape")
        return
    name = source.removeprefix("header:")
    found = Table().get(name) if properties.headers is None else properties.headers.get(name)
    if found is None:
        return
    letter, value = found
    if name != _KEYS_HEADER:
        yield _text(letter, value)
    elif letter == "A":
        for item_letter, item in value:
            yield _text(item_letter, item)
    else:
        yield from _text(letter, value).split()


def _text(letter: str, value: Any) -> bytes:
    """The text of a field; empty for one that is no key, such as a table."""
    if letter == "S":
        return bytes(value)
    if letter == "t":
        return b"true" if value else b"false"
    return str(value).encode() if isinstance(value, int) else b""
