"""Reads a range of a queue without blocks: one delivery for each message, with its number in `x-warren-seq`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError
from ...amqp.frames import content_properties, with_properties
from ...amqp.properties import decode_properties, encode_properties, headers_extent
from ..rows.messages import BEFORE_PROPERTIES, HEADER_OVERHEAD, Messages, RunDescription, from_contents
from ..wire import CHANNEL, BrokerConnection, PublishedAs
from .catalogue import bounds_in
from .similar_deliveries import SimilarDeliveries

#: After this many messages or bytes a `Messages` is complete.
GROUP_MESSAGES, GROUP_BYTES = 2048, 1 << 20

#: The broker adds the number as the last header, and it takes so many bytes.
_NUMBER_BYTES = 8


def read_plain(
    connection: BrokerConnection, queue: str, first: int, stop: int, arguments: Mapping[str, Any]
) -> Iterator[Messages]:
    """The messages from `first` to before `stop` as they come, up to the last message that the queue has.

    arguments    further arguments of the consumer

    Raises Away, Refused, and WentBack.
    """
    strip = NumberRemover()
    numbers: list[int] = []
    contents: list[bytes] = []
    published: list[PublishedAs] = []
    size, at = 0, first
    like: SimilarDeliveries | None = None
    before: tuple[PublishedAs, bytes] | None = None
    wanted = {"x-warren-read-from": first, "x-warren-read-to": stop - 1, "x-warren-bounds": True, **arguments}
    deliveries = connection.consume(queue, wanted)
    for delivery in itertools.islice(deliveries, 1):
        _, after = bounds_in(delivery.content)
        if after < stop:
            raise WentBack(after)
    for each, content, _ in deliveries:
        number, original = strip(content)
        numbers.append(number)
        contents.append(original)
        published.append(each)
        size += len(original)
        form = each, strip.properties
        if form != before:
            before, like = form, None
        elif like is None:
            like = _similar(connection, each, content, original)
        found = None if like is None else like.take(connection, number + 1)
        if found is not None or len(numbers) >= GROUP_MESSAGES or size >= GROUP_BYTES:
            yield from_contents(at, number + 1, numbers, contents, _runs(published))
            at, numbers, contents, published, size = number + 1, [], [], [], 0
        if found is not None:
            yield found
            at = found.next
    if numbers:
        yield from_contents(at, numbers[-1] + 1, numbers, contents, _runs(published))


def _similar(
    connection: BrokerConnection, published: PublishedAs, content: bytes, original: bytes
) -> SimilarDeliveries:
    """What takes the deliveries that have the form of the last one, whose content was `original` before the broker
    added the number.
    """
    header, stripped = (each[: HEADER_OVERHEAD + len(content_properties(each))] for each in (content, original))
    number_at = BEFORE_PROPERTIES + number_place(content_properties(content))
    return SimilarDeliveries(published, connection.delivery, header, number_at, stripped, CHANNEL)


def _runs(published: list[PublishedAs]) -> list[RunDescription]:
    """The runs of messages that were published so."""
    return [
        RunDescription(len(list(run)), each.exchange, (each.routing_key,), each.redelivered)
        for each, run in itertools.groupby(published)
    ]


class WentBack(Exception):
    """The queue has not given all numbers of the range, so it numbers from the beginning. `next` is its next number."""

    def __init__(self, next: int) -> None:
        super().__init__(next)
        self.next = next


class NumberRemover:
    """Removes the header `x-warren-seq` from a content, so that its properties are the publisher's again.

    Messages with equal properties differ only in the number, so the properties without it are computed once for them.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        #: The properties, without the number, of the content of the last call.
        self.properties = b""

    def __call__(self, content: bytes) -> tuple[int, bytes]:
        """The number, and the content without it."""
        props = content_properties(content)
        at = number_place(props)
        number = int.from_bytes(props[at : at + _NUMBER_BYTES], "big", signed=True)
        key = props[:at] + props[at + _NUMBER_BYTES :]
        stripped = self._known.get(key)
        if stripped is None:
            if len(self._known) > 4096:
                self._known.clear()
            stripped = self._known[key] = without_number(props)
        self.properties = stripped
        return number, with_properties(content, stripped)


def number_place(props: bytes) -> int:
    """Where the number begins in properties to which the broker has added it.

    The name of the header is not searched for, because a publisher may write it into any property.
    """
    _, end = headers_extent(props)
    return end - _NUMBER_BYTES


def without_number(props: bytes) -> bytes:
    """The properties without the header that the broker added, and without a header table that is empty then."""
    try:
        found = decode_properties(props)
        left = found.headers.without("x-warren-seq") if found.headers is not None else None
        found.headers = left or None
        return encode_properties(found)
    except (AmqpError, FieldError):
        return props
