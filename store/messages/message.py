"""The messages of a queue: contents, and what the contents of a run have in common.

A **content** is one `bytes`: the AMQP content header frame followed by its body frames, as they came from the wire:

    offset  0  frame type (2)        offset  7  class id       offset 11  body size, u64 big-endian
            1  channel number                9  weight                19  property flags and values (`props`)
            3  header payload size

A **run** is a list of contents that share their fate: persistence, priority, and whether they expire at once (an
expiration of 0). Where the messages of a run came from, and when they expire, are columns: one value if all messages
have the same, else a list of one for each message. Whatever follows from the fate is decided once per run; a queue only
ever slices runs, so that its cost per message is that of a list slice. Properties stay in the contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import unpack
from typing import NamedTuple, TypeVar, Union

from ...seams import seam

#: The first bytes of a content, or of a stub, that are enough to read its body size.
BODY_SIZE_END = 19
_SIZE_FIELD = itemgetter(slice(11, BODY_SIZE_END))
_EXPIRATION = itemgetter(4)

#: Body sizes of a run: one number if all are equal, else a number each.
Sizes = Union[int, "tuple[int, ...]"]

#: When messages expire, in microseconds since the epoch, None = never: one time if all are equal, else one for each.
Expiries = Union[int, None, "list[int | None]"]


class Origin(NamedTuple):
    """Where a message came from, and its fate.

    routing_keys  the key that the message was published with, then those of its CC and BCC headers
    persistent    delivery mode 2 *and* a durable queue (D-15)
    expiration    the message's own expiration property in milliseconds, or None. It is None as soon as a queue has
                  stored the message, because then the queue has its expiry
    """

    exchange: str
    routing_keys: tuple[str, ...]
    persistent: bool = False
    priority: int = 0
    expiration: int | None = None


#: The origins of a run: one that all its messages have, or one for each. Those of one run have the same fate.
Origins = Union[Origin, "list[Origin]"]


def any_of(origins: Origins) -> Origin:
    """One of the origins, for a caller that needs only their fate."""
    return origins[0] if isinstance(origins, list) else origins


@seam("the origins of a part of a run")
def slice_of(origins: Origins, piece: slice) -> Origins:
    """The origins of the messages in `piece`."""
    return origins[piece] if isinstance(origins, list) else origins


Value = TypeVar("Value")


def each_of(column: Value | list[Value], count: int) -> list[Value]:
    """One value of a column for each of the `count` messages."""
    return list(column) if isinstance(column, list) else [column] * count


def expiries_of(expiries: Expiries, piece: slice) -> Expiries:
    """When the messages in `piece` expire."""
    return expiries[piece] if isinstance(expiries, list) else expiries


def latest_expiry(expiries: Expiries) -> int | None:
    """The latest time at which one of the messages expires; None if none of them ever does."""
    if not isinstance(expiries, list):
        return expiries
    return max((expiry for expiry in expiries if expiry is not None), default=None)


def have_expirations(origins: list[Origin]) -> bool:
    """Whether some of the origins, of which the first one has none, have an expiration (20 ns a message)."""
    return any(map(_EXPIRATION, origins))


def have_same_fate(one: Origin, other: Origin) -> bool:
    """Whether messages with these origins may share a run. Messages that expire at once share none with messages that
    do not, because a queue may drop the former where it keeps the latter (AB-96).
    """
    return (
        one is other
        or one.persistent == other.persistent
        and one.priority == other.priority
        and (one.expiration == 0) is (other.expiration == 0)
    )


class QueuedMessage(NamedTuple):
    """One message of a queue. `expiry` is in microseconds since the epoch, None = never."""

    tag: int
    content: bytes
    origin: Origin
    expiry: int | None
    redelivered: bool


class FetchedMessages(NamedTuple):
    """Messages taken from a queue's head, in order. `tags` are ack tags, parallel to `contents`."""

    origins: Origins
    redelivered: bool
    tags: Sequence[int]
    contents: list[bytes]


def joined(one: Origins, count: int, other: Origins, other_count: int) -> Origins:
    """The origins of two stretches of messages that become one; neither list is changed."""
    if not isinstance(one, list) and one == other:
        return one
    return each_of(one, count) + each_of(other, other_count)


def body_size(content: bytes) -> int:
    """Bytes in the body of a content; all statistics and length limits count these."""
    return int.from_bytes(content[11:19], "big")


def properties_size(content: bytes) -> int:
    """Bytes that the properties of `content` take, their flags included."""
    return int.from_bytes(content[3:7], "big") - 12


def body_sizes(contents: Sequence[bytes]) -> Sizes:
    """Body sizes of at least one content (40 ns a message when all are equal)."""
    count = len(contents)
    fields = b"".join(map(_SIZE_FIELD, contents))
    first = fields[:8]
    if fields == first * count:
        return int.from_bytes(first, "big")
    return unpack(f">{count}Q", fields)
