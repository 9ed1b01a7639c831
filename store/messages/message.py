"""What a queue holds: message contents in runs.

A **content** is one `bytes`: the AMQP content header frame followed by its body frames, as they came from the wire:

    offset  0  frame type (2)        offset  7  class id       offset 11  body size, u64 big-endian
            1  channel number                9  weight                19  property flags and values (`props`)
            3  header payload size

A **run** is a list of contents that share one `Origin`. Whatever depends on exchange, routing keys or properties is
decided once per run; a queue only ever slices runs, so that its cost per message is that of a list slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import unpack
from typing import NamedTuple, Union

BODY_SIZE_END = 19
"""No more of a content, or of a stub, is needed to tell the size of its body."""
_SIZE_FIELD = itemgetter(slice(11, BODY_SIZE_END))

Sizes = Union[int, "tuple[int, ...]"]
"""Body sizes of a run: one number when all are equal, else one number each."""


class Origin(NamedTuple):
    """What the messages of a run have in common.

    `persistent` is the effective persistence: delivery mode 2 *and* a durable queue (D-15). `expiration` is the
    message's own expiration in milliseconds, or None.
    """

    exchange: str
    routing_keys: tuple[str, ...]
    props: bytes
    persistent: bool = False
    priority: int = 0
    expiration: int | None = None


class QueuedMessage(NamedTuple):
    """One message, for folds and reads. `expiry` is in microseconds since the epoch, None = never."""

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
    """Bytes in the body of `content`; all statistics and length limits count these."""
    return int.from_bytes(content[11:19], "big")


def body_sizes(contents: Sequence[bytes]) -> Sizes:
    """Body sizes of a run that is not empty (40 ns a message when all are equal)."""
    count = len(contents)
    fields = b"".join(map(_SIZE_FIELD, contents))
    first = fields[:8]
    if fields == first * count:
        return int.from_bytes(first, "big")
    return unpack(f">{count}Q", fields)
