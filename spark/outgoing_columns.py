"""The frames of many rows at once: Arrow joins columns of bytes, so nothing is done for each row in Python (SP-85).

A row is sent as

    method frame | 02 channel size class weight body-size flags values CE | 03 channel size body CE

Most of that is the same in all rows, or is a number, which numpy writes for all rows together. What differs in length,
such as bodies and message ids, is a column of Arrow. `RowEncoder.messages` makes the same frames one row after the
other. It also handles the rows that this module does not: those without a body, those whose body needs several frames,
and those that are refused with an error that names the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..amqp.constants import CLASS_BASIC, FRAME_BODY, FRAME_END, FRAME_HEADER
from ..amqp.fields import FieldError, encode_table
from ..amqp.properties import FLAG_MESSAGE_ID, PROPERTY_KINDS

#: The most bytes of a short string.
_SHORT = 255
_NOTHING = pa.scalar(b"")


class JoinedFrames(NamedTuple):
    """The frames of some rows.

    data            the bytes of all frames, as a buffer
    bounds          where the frames of each row begin in `data`, and at the end where those of the last row end
    sizes           the bytes of each body
    destinations    how many rows go to each exchange and routing key
    """

    data: Any
    bounds: Any
    sizes: Any
    destinations: dict[tuple[str, str], int]


class FrameColumns:
    """Makes the frames of record batches.

    method      the method frame for an exchange and a routing key
    table       the header table for a value of the column `headers`
    split       properties cut where a message id belongs, and whether they have one already
    step        the most bytes of a body in one frame
    id_columns  the columns whose values name a row; with `scope` before them they become the message id
    """

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        channel: int,
        step: int,
        method: Callable[[str, str], bytes],
        table: Callable[[Any], Any],
        split: Callable[[bytes], tuple[bytes, bytes, bool]],
        id_columns: Sequence[str],
        scope: str,
    ) -> None:
        self._exchange, self._routing_key = exchange, routing_key
        self._channel = channel.to_bytes(2, "big")
        self._step = step
        self._method, self._table, self._split = method, table, split
        self._id_columns, self._scope = id_columns, scope

    def joined(self, batch: Any) -> JoinedFrames | None:
        """The frames of all rows; None if only `RowEncoder.messages` can make those of some row."""
        columns = dict(zip(batch.schema.names, batch.columns))
        bodies = columns["body"].cast(pa.binary())
        if bodies.null_count:
            return None
        sizes = byte_lengths(bodies)
        if not len(sizes) or not 0 < sizes.min() <= sizes.max() <= self._step:
            return None
        properties = self._properties(columns, len(sizes))
        if properties is None:
            return None
        rows = _Parts(len(sizes))
        destinations = self._add_methods(rows, columns)
        rows.constant(bytes((FRAME_HEADER,)) + self._channel)
        rows.number(properties.lengths() + 12, 4)  # class, weight and body size have 12 bytes
        rows.constant(CLASS_BASIC.to_bytes(2, "big") + bytes(2))
        rows.number(sizes, 8)
        rows.extend(properties)
        rows.constant(bytes((FRAME_END, FRAME_BODY)) + self._channel)
        rows.number(sizes, 4)
        rows.column(bodies)
        rows.constant(bytes((FRAME_END,)))
        frames = rows.joined()
        _, bounds, data = frames.buffers()
        bounds = np.frombuffer(bounds, np.int32)[frames.offset : frames.offset + len(sizes) + 1]
        return JoinedFrames(memoryview(data), bounds, sizes, destinations)

    def _add_methods(self, rows: _Parts, columns: Mapping[str, Any]) -> dict[tuple[str, str], int]:
        """Add the method frames, and count the rows for each exchange and key."""
        exchanges, of_exchange = _distinct(columns.get("exchange"), self._exchange, rows.count)
        keys, of_key = _distinct(columns.get("routing_key"), self._routing_key, rows.count)
        used, place, counts = np.unique(of_exchange * len(keys) + of_key, return_inverse=True, return_counts=True)
        pairs = [(exchanges[code // len(keys)], keys[code % len(keys)]) for code in used.tolist()]
        rows.one_of([self._method(*pair) for pair in pairs], place)
        return dict(zip(pairs, counts.tolist()))

    # -- properties ---

    def _properties(self, columns: Mapping[str, Any], count: int) -> _Parts | None:
        """Flags and values of the properties of each row; None if only `RowEncoder.messages` can make them."""
        encoded = columns.get("properties")
        if encoded is None or encoded.null_count == count:
            return self._of_columns(columns, count)
        if encoded.null_count:
            return None
        found = _Parts(count)
        if not self._id_columns:
            found.column(encoded.cast(pa.binary()))
            return found
        distinct = encoded.cast(pa.binary()).dictionary_encode()
        splits = [self._split(each) for each in distinct.dictionary.to_pylist()]
        if any(has_one for _, _, has_one in splits):
            return None
        place = distinct.indices.to_numpy()
        found.one_of([before for before, _, _ in splits], place)
        if not self._add_id(found, columns):
            return None
        found.one_of([after for _, after, _ in splits], place)
        return found

    def _of_columns(self, columns: Mapping[str, Any], count: int) -> _Parts | None:
        flags = np.zeros(count, np.int64)
        values = _Parts(count)
        for flag, name, kind in PROPERTY_KINDS:
            if flag == FLAG_MESSAGE_ID and self._id_columns:
                own = columns.get(name)
                if own is not None and own.null_count < count or not self._add_id(values, columns):
                    return None
                flags |= flag
                continue
            if name == "delivery_mode":
                values.number(_delivery_modes(columns.get("persistent"), count), 1)
                flags |= flag
                continue
            column = columns.get(name)
            if column is None or column.null_count == count:
                continue
            has = None if not column.null_count else column.is_valid()
            flags |= flag if has is None else flag * has.to_numpy(zero_copy_only=False)
            added = {"S": self._add_text, "T": self._add_headers}.get(kind, self._add_number)
            if not added(values, column, has, 8 if kind == "L" else 1):
                return None
        found = _Parts(count)
        found.number(flags, 2)
        found.extend(values)
        return found

    def _add_id(self, parts: _Parts, columns: Mapping[str, Any]) -> bool:
        """Add the message id that names each row; return whether all rows have one that fits."""
        texts = [_text_of(columns[name]) for name in self._id_columns]
        if any(each is None or each.null_count for each in texts):
            return False
        ids = _Parts(parts.count)
        ids.constant(self._scope.encode())
        for each in texts:
            ids.constant(b"/")
            ids.column(each)
        lengths = ids.lengths()
        if lengths.max() > _SHORT:
            return False
        parts.number(lengths, 1)
        parts.extend(ids)
        return True

    # The three methods below add a property to all rows, and return whether all values fit. `has` is a mask of the rows
    # that have the property, None if all do; `size` is the bytes of a number.

    def _add_text(self, parts: _Parts, column: Any, has: Any, size: int) -> bool:
        texts = column.cast(pa.binary())
        lengths = byte_lengths(texts)
        if lengths.max() > _SHORT:
            return False
        if has is None:
            parts.number(lengths, 1)
            parts.column(texts)
        else:
            parts.column(_where(has, _fixed([_big_endian(lengths, 1)], parts.count)))
            parts.column(_where(has, texts))
        return True

    def _add_number(self, parts: _Parts, column: Any, has: Any, size: int) -> bool:
        numbers = _filled(seconds_of(column) if pa.types.is_timestamp(column.type) else column)
        if numbers.min() < 0 or size == 1 and numbers.max() > 255:
            return False
        if has is None:
            parts.number(numbers, size)
        else:
            parts.column(_where(has, _fixed([_big_endian(numbers, size)], parts.count)))
        return True

    def _add_headers(self, parts: _Parts, column: Any, has: Any, size: int) -> bool:
        known: dict[Any, int] = {}
        tables: list[bytes] = []
        places = []
        try:
            headers = column.to_pylist()
        except (ValueError, OverflowError):  # a time that Python does not have
            return False
        for value in headers:
            key = hashable(value)
            place = known.get(key)
            if place is None:
                place = known[key] = len(tables)
                try:
                    tables.append(b"" if value is None else encode_table(self._table(value)))
                except FieldError:
                    return False
            places.append(place)
        parts.one_of(tables, np.array(places))
        return True


def hashable(value: Any) -> Any:
    """A value of a column as the key of a dict."""
    if isinstance(value, list):
        return tuple(hashable(each) for each in value)
    if isinstance(value, (tuple, dict)):
        return tuple(hashable(each) for each in (value.items() if isinstance(value, dict) else value))
    return value


class _Parts:
    """The bytes of some rows, part by part. A part has one length in all rows, or is a column of Arrow."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._columns: list[Any] = []
        #: The parts of one length behind the last column: bytes, or an array with a row of bytes for each row.
        self._open: list[Any] = []
        #: The bytes that each row has by now.
        self._lengths: Any = np.zeros(count, np.int64)

    def constant(self, data: bytes) -> None:
        """Add bytes that all rows have."""
        if data:
            self._open.append(data)
            self._lengths = self._lengths + len(data)

    def number(self, values: Any, size: int) -> None:
        """Add a big-endian number of `size` bytes."""
        self._open.append(_big_endian(values, size))
        self._lengths = self._lengths + size

    def column(self, values: Any) -> None:
        """Add a binary array without nulls."""
        self._close()
        self._columns.append(values)
        self._lengths = self._lengths + byte_lengths(values)

    def one_of(self, values: Sequence[bytes], place: Any) -> None:
        """Add for each row the value at its place among `values`."""
        if len(values) == 1:
            self.constant(values[0])
        else:
            self.column(pa.array(values, pa.binary()).take(pa.array(place)))

    def extend(self, other: _Parts) -> None:
        """Add all parts of `other`."""
        if other._columns:
            self._close()
            self._columns += other._columns
        self._open += other._open
        self._lengths = self._lengths + other._lengths

    def lengths(self) -> Any:
        """The bytes of each row."""
        return self._lengths

    def joined(self) -> Any:
        """The rows as a binary array."""
        self._close()
        return pc.binary_join_element_wise(*self._columns, _NOTHING)

    def _close(self) -> None:
        if self._open:
            self._columns.append(_fixed(self._open, self.count))
            self._open = []


def _fixed(parts: Sequence[Any], count: int) -> Any:
    """A binary array of parts that have one length in all rows."""
    widths = [len(part) if isinstance(part, bytes) else part.shape[1] for part in parts]
    width = sum(widths)
    rows = np.empty((count, width), np.uint8)
    at = 0
    for part, size in zip(parts, widths):
        rows[:, at : at + size] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        at += size
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32) if width else np.zeros(count + 1, np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _big_endian(values: Any, size: int) -> Any:
    """An array with the last `size` bytes of each number."""
    return np.ascontiguousarray(values, ">i8").view(np.uint8).reshape(len(values), 8)[:, 8 - size :]


def seconds_of(times: Any) -> Any:
    """Times as whole seconds since 1970, which is what AMQP has. Python's datetime ends with the year 9999."""
    microseconds = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    return pa.array(_filled(microseconds) // 1_000_000, mask=times.is_null().to_numpy(zero_copy_only=False))


def byte_lengths(values: Any) -> Any:
    """The bytes of each value, int64; 0 for a null."""
    return _filled(pc.binary_length(values)).astype(np.int64)


def _filled(numbers: Any) -> Any:
    """Numbers as an array of numpy, with 0 for a null."""
    return (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy()


def _where(has: Any, values: Any) -> Any:
    """The values, empty where a row has none."""
    return pc.if_else(has, values, _NOTHING)


def _distinct(column: Any, default: str, count: int) -> tuple[list[str], Any]:
    """The distinct texts of a column, and the place of each row's among them; a null is the default."""
    if column is None:
        return [default], np.zeros(count, np.int64)
    encoded = pc.fill_null(column.cast(pa.string()), default).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _delivery_modes(persistent: Any, count: int) -> Any:
    """1 where a row is not persistent, else 2."""
    if persistent is None:
        return np.full(count, 2)
    return np.where(pc.fill_null(persistent, True).to_numpy(zero_copy_only=False), 2, 1)


def _text_of(column: Any) -> Any:
    """The values of a column as `str` writes them; None if Arrow may write this type in another way."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    return column.cast(pa.binary())
