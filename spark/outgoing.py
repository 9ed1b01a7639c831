"""Rows as frames: what the sink sends to a broker for the rows of a record batch.

`RowEncoder.parts` makes the frames of many rows at once (`outgoing_columns`), or one row after the other by
`RowEncoder.messages`, which takes all rows. There method frames and encoded properties are made once for each distinct
value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..amqp.constants import CLASS_BASIC, FRAME_BODY, FRAME_HEADER, FRAME_OVERHEAD
from ..amqp.errors import AmqpError
from ..amqp.fields import FieldError, Table, table_from
from ..amqp.frames import CONTENT_HEAD, END, HEAD, method_frame
from ..amqp.methods import BasicPublish
from ..amqp.properties import (
    FLAG_MESSAGE_ID,
    PROPERTY_KINDS,
    Properties,
    decode_properties,
    encode_properties,
    property_flags,
)
from .errors import wrong_options
from .outgoing_columns import FrameColumns, JoinedFrames, byte_lengths, hashable, seconds_of
from .wire import CHANNEL

#: The most rows of a part, and the bytes of bodies after which one ends.
PART_ROWS, PART_BYTES = 4096, 1 << 20

#: Columns that become properties, with their types in Spark's DDL.
PROPERTY_COLUMNS = {
    "content_type": "string",
    "content_encoding": "string",
    "correlation_id": "string",
    "reply_to": "string",
    "expiration": "string",
    "message_id": "string",
    "type": "string",
    "user_id": "string",
    "app_id": "string",
    "cluster_id": "string",
    "priority": "int",
    "timestamp": "timestamp",
}
#: All columns that the sink takes.
TAKEN = {"body", "exchange", "routing_key", "headers", "persistent", "properties", *PROPERTY_COLUMNS}


class OutgoingMessage(NamedTuple):
    """A message as it is sent. `row` counts from 0 in the task."""

    row: int
    exchange: str
    routing_key: str
    body: bytes
    frames: bytes


class OutgoingPart:
    """Some rows of a record batch in their order, with their frames.

    first     the number of the first row in the task
    joined    their frames
    """

    __slots__ = ("_batch", "_ends", "_encoder", "first", "joined")

    def __init__(self, encoder: RowEncoder, batch: Any, first: int, joined: JoinedFrames) -> None:
        self._encoder = encoder
        self._batch = batch
        self.first = first
        self.joined = joined
        #: The bytes of all bodies up to each row, that of the row included.
        self._ends = np.cumsum(joined.sizes)

    def __len__(self) -> int:
        return len(self.joined.sizes)

    def body_bytes(self, rows: int) -> int:
        """The bytes of the bodies of the first rows."""
        return int(self._ends[rows - 1]) if rows else 0

    def frames(self, start: int, stop: int) -> Any:
        """The frames of the rows from one place to before another one."""
        bounds = self.joined.bounds
        return self.joined.data[bounds[start] : bounds[stop]]

    def stop_for(self, start: int, body_bytes: int, frame_bytes: int) -> int:
        """The place behind the first row with which the rows from `start` on reach `body_bytes` or `frame_bytes`."""
        bounds = self.joined.bounds
        by_bodies = np.searchsorted(self._ends, self.body_bytes(start) + body_bytes) + 1
        by_frames = np.searchsorted(bounds, int(bounds[start]) + frame_bytes)
        return min(int(by_bodies), int(by_frames), len(self))

    def message(self, place: int) -> OutgoingMessage:
        """The row at this place, for an error text."""
        (found,) = self._encoder.messages(self._batch.slice(place, 1), self.first + place)
        return found


class RowEncoder:
    """Makes frames of record batches.

    id_columns    the columns whose values name a row for ever; without them messages get no ids
    scope         the name within which these ids are unique
    """

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        is_mandatory: bool,
        frame_max: int,
        id_columns: Sequence[str] = (),
        scope: str = "",
    ) -> None:
        self._exchange = exchange
        self._routing_key = routing_key
        self._is_mandatory = is_mandatory
        self._step = frame_max - FRAME_OVERHEAD if frame_max else 1 << 62
        self._id_columns = id_columns
        self._scope = scope
        self._row = 0
        self._method = lru_cache(maxsize=4096)(self._method_frame)
        self._columns = FrameColumns(
            exchange, routing_key, CHANNEL, self._step, self._method, _table, _split, id_columns, scope
        )

    def parts(self, batch: Any) -> Iterator[OutgoingPart]:
        """The rows of a record batch in parts, with their frames."""
        ends = np.cumsum(byte_lengths(batch.column("body")))
        start = before = 0
        while start < batch.num_rows:
            stop = min(start + PART_ROWS, int(np.searchsorted(ends, before + PART_BYTES)) + 1, batch.num_rows)
            part = batch.slice(start, stop - start)
            joined = self._columns.joined(part) or self._joined(part)
            yield OutgoingPart(self, part, self._row, joined)
            self._row += stop - start
            start, before = stop, int(ends[stop - 1])

    def _joined(self, batch: Any) -> JoinedFrames:
        """The frames of all rows, made one row after the other."""
        messages = list(self.messages(batch))
        bounds = np.array([0, *accumulate(len(each.frames) for each in messages)], np.int64)
        sizes = np.array([len(each.body) for each in messages], np.int64)
        destinations = Counter((each.exchange, each.routing_key) for each in messages)
        return JoinedFrames(memoryview(b"".join(each.frames for each in messages)), bounds, sizes, destinations)

    def messages(self, batch: Any, first: int = 0) -> Iterator[OutgoingMessage]:
        """The messages of a record batch, row by row. `first` is the number of the first row in the task."""
        columns = {name: _values(name, batch.column(name)) for name in batch.schema.names if name in TAKEN}
        count = batch.num_rows
        exchanges = columns.get("exchange") or [None] * count
        keys = columns.get("routing_key") or [None] * count
        named = [name for name in columns if name in PROPERTY_COLUMNS or name in ("headers", "persistent")]
        encoded = columns.get("properties") or [None] * count
        ids = [_names(batch.column(name)) for name in self._id_columns]
        bodies = columns["body"]
        known: dict[tuple[Any, ...], bytes] = {}
        for at in range(count):
            body = bodies[at]
            body = b"" if body is None else body.encode() if isinstance(body, str) else body
            exchange = self._exchange if exchanges[at] is None else exchanges[at]
            key = self._routing_key if keys[at] is None else keys[at]
            props = encoded[at]
            if props is None:
                values = tuple(hashable(columns[name][at]) for name in named)
                props = known.get(values)
                if props is None:
                    props = known[values] = properties_of({name: columns[name][at] for name in named})
            if ids:
                props = with_id(props, "/".join((self._scope, *self._id(ids, at))))
            frames = self._method(exchange, key) + self._content(props, body)
            yield OutgoingMessage(first + at, exchange, key, body, frames)

    def _id(self, ids: Sequence[Sequence[Any]], at: int) -> Iterator[str]:
        for name, values in zip(self._id_columns, ids):
            if values[at] is None:
                raise wrong_options(
                    f"column '{name}', which 'messageId' stands for, is null in a row; each row needs a "
                    "value of its own"
                )
            yield str(values[at])

    def _method_frame(self, exchange: str, key: str) -> bytes:
        try:
            return method_frame(CHANNEL, BasicPublish(exchange=exchange, routing_key=key, mandatory=self._is_mandatory))
        except FieldError as error:
            raise wrong_options(f"a row cannot be a message: {error}") from None

    def _content(self, props: bytes, body: bytes) -> bytes:
        size = len(body)
        head = CONTENT_HEAD.pack(FRAME_HEADER, CHANNEL, 12 + len(props), CLASS_BASIC, 0, size)
        if not size:
            return b"".join((head, props, END))
        if size <= self._step:
            return b"".join((head, props, END, HEAD.pack(FRAME_BODY, CHANNEL, size), body, END))
        parts = [head, props, END]
        for start in range(0, size, self._step):
            piece = body[start : start + self._step]
            parts += (HEAD.pack(FRAME_BODY, CHANNEL, len(piece)), piece, END)
        return b"".join(parts)


def properties_of(row: Mapping[str, Any]) -> bytes:
    """The encoded properties that the columns of a row stand for; its timestamp is in seconds since 1970. Raises
    SparkSourceError E4.
    """
    found = Properties()
    for name in PROPERTY_COLUMNS:
        value = row.get(name)
        if value is not None:
            setattr(found, name, value)
    found.delivery_mode = 2 if row.get("persistent") in (None, True) else 1
    headers = row.get("headers")
    try:
        if headers is not None:
            found.headers = _table(headers)
        return encode_properties(found)
    except FieldError as error:
        raise wrong_options(f"a row cannot be a message: {error}") from None


def _values(name: str, column: Any) -> list[Any]:
    """The values of a column that the sink takes, as Python has them. Raises SparkSourceError E4."""
    try:
        return list((seconds_of(column) if name == "timestamp" else column).to_pylist())
    except (ValueError, OverflowError) as error:
        raise wrong_options(f"a row cannot be a message: column '{name}' has a time out of range ({error})") from None


def _names(column: Any) -> list[Any]:
    """The values of a column that name its rows. A time outside of Python's years 1 to 9999 is named by its number."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_name(value) for value in column]


def _name(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.value


def _table(headers: Any) -> Table:
    """A table of a map of strings, which Arrow gives as pairs, or of a struct, whose fields keep their types."""
    if isinstance(headers, list):
        return table_from(dict(headers))
    return table_from({name: value for name, value in headers.items() if value is not None})


@lru_cache(maxsize=4096)
def _split(props: bytes) -> tuple[bytes, bytes, bool]:
    """Properties cut at the place of the message id, with its flag set, and whether there was one."""
    try:
        found = decode_properties(props)
    except AmqpError:
        raise wrong_options(
            "a row cannot be a message with an id of its own: the bytes in its column 'properties' are no properties"
        ) from None
    had_one = found.message_id is not None
    before, after = Properties(), Properties()
    is_behind = False
    for flag, name, _ in PROPERTY_KINDS:
        if flag == FLAG_MESSAGE_ID:
            is_behind = True
        elif getattr(found, name) is not None:
            setattr(after if is_behind else before, name, getattr(found, name))
    flags = (property_flags(props) | FLAG_MESSAGE_ID).to_bytes(2, "big")
    return flags + encode_properties(before)[2:], encode_properties(after)[2:], had_one


def with_id(props: bytes, message_id: str) -> bytes:
    """The properties with an id by which the broker recognises a message that is published again.

    It is the property message-id, or the header `x-warren-dedup` if the row has a message id of its own.
    """
    before, after, had_one = _split(props)
    encoded = message_id.encode()
    if not had_one:
        if len(encoded) > 255:
            raise wrong_options(f"option 'messageId' of format 'warren': '{message_id[:80]}…' is longer than 255 bytes")
        return b"".join((before, bytes((len(encoded),)), encoded, after))
    found = decode_properties(props)
    found.headers = (found.headers or Table()).replaced("x-warren-dedup", "S", encoded)
    return encode_properties(found)


def check_columns(declared: Sequence[tuple[str, str]], ignored: bool, id_columns: Sequence[str]) -> None:
    """Raise SparkSourceError E4 for a column that the sink does not take or does not have, or one of a wrong type."""
    types = dict(declared)
    for name in id_columns:
        if name not in types:
            raise wrong_options(
                f"option 'messageId' of format 'warren' needs a column '{name}', and the rows have none. They have "
                f"{', '.join(sorted(types))}"
            )
    if types.get("body") not in ("binary", "string"):
        raise wrong_options("the sink 'warren' needs a column 'body' of type binary or string")
    for name, type in types.items():
        wanted = {"exchange": "string", "routing_key": "string", "persistent": "boolean", "properties": "binary"}.get(
            name, PROPERTY_COLUMNS.get(name)
        )
        if name == "headers" and not (type == "map<string,string>" or type.startswith("struct<")):
            raise wrong_options(f"column 'headers' is of type {type}: the sink takes map<string,string> or a struct")
        if wanted is not None and type != wanted:
            raise wrong_options(f"column '{name}' is of type {type}: the sink 'warren' takes {wanted}")
        if name not in TAKEN and name not in id_columns and not ignored:
            raise wrong_options(
                f"the sink 'warren' has no column '{name}'. Drop it, or set ignoreColumns=true; it takes "
                f"{', '.join(sorted(TAKEN))}"
            )
