"""The messages of a queue: contents, and what the contents of a run have in common.

A **content** is one `bytes`: the AMQP content header frame followed by its body frames, as they came from the wire:

    offset  0  frame type (2)        offset  7  class id       offset 11  body size, u64 big-endian
            1  channel number                9  weight                19  property flags and values (`props`)
            3  header payload size

A **run** is a list of contents that share one `Origin`. Everything that depends on exchange, routing keys or properties
is decided once per run. A queue only slices runs, so a message costs it a list slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import unpack
from typing import NamedTuple, Union

#: The first bytes of a content, or of a stub, that are enough to read its body size.
BODY_SIZE_END = 19
_SIZE_FIELD = itemgetter(slice(11, BODY_SIZE_END))

#: Body sizes of a run: one number if all are equal, else a number each.
Sizes = Union[int, "tuple[int, ...]"]


class Origin(NamedTuple):
    """What the messages of a run have in common.

    persistent   delivery mode 2 *and* a durable queue (D-15)
    expiration   the messages' own expiration property in milliseconds, or None
    """

    exchange: str
    routing_keys: tuple[str, ...]
    props: bytes
    persistent: bool = False
    priority: int = 0
    expiration: int | None = None


class QueuedMessage(NamedTuple):
    """One message of a queue. `expiry` is in microseconds since the epoch, None = never."""

    tag: int
    content: bytes
    origin: Origin
    expiry: int | None
    redelivered: bool


class Delivery(NamedTuple):
    """Messages taken from a queue's head, in order. `tags` are ack tags, parallel to `contents`."""

    origin: Origin
    redelivered: bool
    tags: Sequence[int]
    contents: list[bytes]


def body_size(content: bytes) -> int:
    """Bytes in the body of a content; all statistics and length limits count these."""
    return int.from_bytes(content[11:19], "big")


def body_sizes(contents: Sequence[bytes]) -> Sizes:
    """Body sizes of at least one content (40 ns a message when all are equal)."""
    count = len(contents)
    fields = b"".join(map(_SIZE_FIELD, contents))
    first = fields[:8]
    if fields == first * count:
        return int.from_bytes(first, "big")
    return unpack(f">{count}Q", fields)
