"""Codecs for what channels and queues send each other: runs of messages, their origins, ack tags and field tables.

A run costs a few µs, however many messages it has. What all its messages have in common is written once, and their
contents are copied behind the msgpack data as they are (CL-13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....amqp.fields import FieldError, Table, decode_table_at, encode_table
from ....store.messages.message import FetchedMessages, Origin
from ....store.messages.message_ids import as_bytes
from ....store.messages.packed_contents import PackedContents, cut
from .codecs import BOOLEAN, INTEGER, PLAIN, TEXT, Codec, CodecError, Incoming, NotCarried, Optional, Outgoing


class _Table(Codec):
    """A field table, as AMQP writes it."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not Table:
            raise NotCarried(f"{value!r} is no field table")
        try:
            return encode_table(value)
        except FieldError as error:
            raise NotCarried(f"a field table that AMQP cannot write: {error}") from None

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not bytes:
            raise CodecError("no field table")
        try:
            table, end = decode_table_at(value, 0)
        except Exception as error:
            # Damaged bytes raise struct.error, UnicodeDecodeError, IndexError or RecursionError as well as FieldError.
            raise CodecError(f"a damaged field table ({type(error).__name__})") from None
        if end != len(value):
            raise CodecError("bytes behind a field table")
        return table


TABLE: Codec = _Table()


class _Info(Codec):
    """A row of a listing: plain values and field tables by name."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not dict or not all([type(name) is str for name in value]):
            raise NotCarried(f"{value!r} is no row of a listing")
        return {
            name: [1, TABLE.encode(item, out)] if isinstance(item, Table) else [0, PLAIN.encode(item, out)]
            for name, item in value.items()
        }

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not dict:
            raise CodecError("no row of a listing")
        found = {}
        for name, item in value.items():
            if type(name) is not str or type(item) is not list or len(item) != 2:
                raise CodecError("no item of a row")
            found[name] = (TABLE if item[0] == 1 else PLAIN).decode(item[1], incoming)
        return found


INFO: Codec = _Info()


class OneOf(Codec):
    """One of these texts."""

    def __init__(self, *texts: str) -> None:
        self._texts = frozenset(texts)

    def encode(self, value: Any, out: Outgoing) -> Any:
        if value not in self._texts:
            raise NotCarried(f"{value!r} is none of {sorted(self._texts)}")
        return value

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not str or value not in self._texts:
            raise CodecError(f"a value that is none of {sorted(self._texts)}")
        return value


_BYTES = {bytes}

#: Bytes from which a content is handed to the socket as it is. Joining smaller ones costs less than a piece for each.
LARGE_CONTENT = 16_384

#: Runs of at least this many contents stay in one piece until somebody needs a content. A queue joins smaller ones with
#: others.
PACKED_FROM = 32

#: A run stays in one piece only if it is at least one part in this many of the bytes that were read at once, because it
#: keeps all of these in memory.
PACKED_PART = 8

_EXPIRATION = Optional(INTEGER)

#: Origins that are kept, so that equal ones are encoded and decoded once, and the most routing keys of one of them.
KEPT_ORIGINS, KEPT_KEYS = 1_024, 4


class _Origin(Codec):
    """An `Origin`.

    Publishers repeat their origins, so each is encoded and decoded once. Equal origins are one object then, so code
    that compares origins by their `id()` works as for messages of this node.
    """

    def __init__(self) -> None:
        self._encoded: dict[Origin, list[Any]] = {}
        self._decoded: dict[tuple[Any, ...], Origin] = {}

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not Origin:
            raise NotCarried(f"{value!r} is no origin of a message")
        try:
            found = self._encoded.get(value)
        except TypeError:
            raise NotCarried(f"{value!r} has a value of a wrong type") from None
        if found is None:
            exchange, keys, is_persistent, priority, expiration = value
            found = [exchange, list(keys), is_persistent, priority, expiration]
            if len(keys) <= KEPT_KEYS:
                if len(self._encoded) >= KEPT_ORIGINS:
                    self._encoded.clear()
                self._encoded[value] = found
        return found

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) < 5:
            raise CodecError("no origin of a message")
        exchange, keys, is_persistent, priority, expiration = value[:5]
        if type(keys) is not list or not keys:
            raise CodecError("an origin without a routing key")
        kept = exchange, *keys, is_persistent, priority, expiration
        try:
            found = self._decoded.get(kept)
        except TypeError:
            raise CodecError("an origin with a value of a wrong type") from None
        if found is None:
            found = self._origin(exchange, keys, is_persistent, priority, expiration, incoming)
            if len(keys) <= KEPT_KEYS:
                if len(self._decoded) >= KEPT_ORIGINS:
                    self._decoded.clear()
                self._decoded[kept] = found
        return found

    def _origin(
        self, exchange: Any, keys: list[Any], is_persistent: Any, priority: Any, expiration: Any, incoming: Incoming
    ) -> Origin:
        return Origin(
            TEXT.decode(exchange, incoming),
            tuple([TEXT.decode(key, incoming) for key in keys]),
            BOOLEAN.decode(is_persistent, incoming),
            INTEGER.decode(priority, incoming),
            _EXPIRATION.decode(expiration, incoming),
        )


ORIGIN: Codec = _Origin()


class _Origins(Codec):
    """The origins of a run: one, or each origin once and for each message the place of its own."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is Origin:
            return [ORIGIN.encode(value, out)]
        if type(value) is not list:
            raise NotCarried(f"{value!r} are no origins of messages")
        places: dict[int, int] = {}
        origins: list[Any] = []
        at = []
        for origin in value:
            place = places.get(id(origin))
            if place is None:
                place = places[id(origin)] = len(origins)
                origins.append(ORIGIN.encode(origin, out))
            at.append(place)
        return [origins, at]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) not in (1, 2):
            raise CodecError("no origins of messages")
        if len(value) == 1:
            return ORIGIN.decode(value[0], incoming)
        if type(value[0]) is not list or type(value[1]) is not list:
            raise CodecError("no column of origins")
        origins = [ORIGIN.decode(item, incoming) for item in value[0]]
        if not all([type(place) is int and 0 <= place < len(origins) for place in value[1]]):
            raise CodecError("a message of an origin that is not there")
        return [origins[place] for place in value[1]]


ORIGINS: Codec = _Origins()


class _Contents(Codec):
    """The contents of a run, as they are. In front of them: `[True, count, size]` if there are several of one size,
    else the size of each.

    With `keeps_pieces` a large run that arrives stays in one piece until somebody needs its contents.
    """

    def __init__(self, keeps_pieces: bool) -> None:
        self._keeps_pieces = keeps_pieces

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is PackedContents:
            out.raw.append(value.in_one_piece)
            return [True, len(value), value.sizes] if isinstance(value.sizes, int) else value.sizes
        contents = value if type(value) is list else list(value)
        if not set(map(type, contents)) <= _BYTES:
            raise NotCarried("a content that is no bytes")
        sizes = list(map(len, contents))
        if len(sizes) == 1 or max(sizes, default=0) >= LARGE_CONTENT:
            out.raw += contents
        else:
            # One copy here spares the frame several passes over the contents.
            out.raw.append(b"".join(contents))
        if len(sizes) > 2 and sizes.count(sizes[0]) == len(sizes):
            return [True, len(sizes), sizes[0]]
        return sizes

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list:
            raise CodecError("no contents")
        if value[:1] != [True] or type(value[0]) is not bool:
            return self._contents(incoming, incoming.skip_each(value), len(value), value)
        _, count, size = value if len(value) == 3 else (None, None, None)
        if type(count) is not int or type(size) is not int or count < 0 or size < 1:
            raise CodecError("no number and size of contents")
        return self._contents(incoming, incoming.skip(count * size), count, size)

    def _contents(self, incoming: Incoming, begin: int, count: int, sizes: int | list[int]) -> Sequence[bytes]:
        """The contents of these sizes, which the incoming bytes have from `begin` to `incoming.at`."""
        data = incoming.data
        if self._keeps_pieces and count >= PACKED_FROM and (incoming.at - begin) * PACKED_PART >= len(data):
            return PackedContents(data, begin, count, sizes)
        return cut(data, begin, count, sizes)


CONTENTS: Codec = _Contents(keeps_pieces=False)

#: For receivers that may hand the run on to another node.
PASSING_CONTENTS: Codec = _Contents(keeps_pieces=True)


class _NumbersCodec(Codec):
    """Numbers of messages in order: start and stop of a range, nothing if it is empty, else a list of each number."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is range and value.step == 1:
            return [value.start, value.stop] if len(value) else []
        numbers = list(value)
        if not all([type(number) is int for number in numbers]):
            raise NotCarried("a number of a message that is no integer")
        return [numbers]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list:
            raise CodecError("no numbers of messages")
        if len(value) == 1 and type(value[0]) is list:
            return [INTEGER.decode(number, incoming) for number in value[0]]
        if not value:
            return []
        if len(value) != 2 or type(value[0]) is not int or type(value[1]) is not int:
            raise CodecError("no range of numbers of messages")
        return range(*value)


NUMBERS: Codec = _NumbersCodec()


class _Id(Codec):
    """The id of a message in a message store, which has 128 bits; 0 is none."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not int or value < 0 or value >> 128:
            raise NotCarried(f"{value!r} is no id of a message")
        return as_bytes(value) if value else None

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if value is None:
            return 0
        if type(value) is not bytes or len(value) != 16:
            raise CodecError("no id of a message")
        return int.from_bytes(value, "big")


MESSAGE_ID: Codec = _Id()


class RunCodec(Codec):
    """The fields of a run, which must have as many origins as contents.

    origins, contents   the places of these two fields; `origins` is None if the run has one origin
    made                the type of the value, a tuple or a named tuple
    """

    def __init__(self, *inner: Codec, origins: int | None, contents: int, made: type[Any] = tuple) -> None:
        # As in `Crossing`, a value of a codec's `types` crosses as it is.
        self._encoders = [(codec.types, codec.encode) for codec in inner]
        self._decoders = [(codec.types, codec.decode) for codec in inner]
        self._origins = origins
        self._contents = contents
        self._made = made

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not self._made or len(value) != len(self._encoders):
            raise NotCarried(f"a {type(value).__name__} that is no run")
        return [
            item if type(item) in types else encode(item, out) for (types, encode), item in zip(self._encoders, value)
        ]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) != len(self._decoders):
            raise CodecError("no run")
        fields = [
            item if type(item) in types else decode(item, incoming)
            for (types, decode), item in zip(self._decoders, value)
        ]
        contents: Sequence[bytes] = fields[self._contents]
        if not contents:
            raise CodecError("a run without a message")
        if self._origins is not None and type(fields[self._origins]) is list:
            if len(fields[self._origins]) != len(contents):
                raise CodecError("a run with another number of origins than of messages")
        return tuple(fields) if self._made is tuple else self._made(*fields)


#: `PublishEntry`, `AtMostOnceEntry`, `DeliveryRun` and `FetchedMessages` of the contracts of queues and channels.
PUBLISH_ENTRY = RunCodec(ORIGINS, PASSING_CONTENTS, INTEGER, INTEGER, BOOLEAN, MESSAGE_ID, origins=0, contents=1)
AT_MOST_ONCE_ENTRY = RunCodec(ORIGIN, CONTENTS, INTEGER, MESSAGE_ID, origins=None, contents=1)
DELIVERY_RUN = RunCodec(ORIGINS, BOOLEAN, Optional(NUMBERS), CONTENTS, origins=0, contents=3)
DELIVERY = RunCodec(ORIGINS, BOOLEAN, NUMBERS, CONTENTS, origins=0, contents=3, made=FetchedMessages)
