"""Decodes properties that differ in each message, such as a message id: one field of all messages at a time.

`properties` decodes each distinct value by itself, which costs microseconds a message if all differ. Here a field is a
column of places in the contents, which numpy computes for the whole batch, and Arrow cuts the values out in C. Only
headers are still decoded one by one, once for each distinct value. If a message of a batch has properties that cannot
be decoded, `properties` decodes the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.properties import PROPERTY_KINDS, Properties, decode_properties
from .messages import BEFORE_PROPERTIES, Messages, slices
from .properties import TOO_LATE

_FLAG_BYTES = 2
#: The flags of a content that has headers only.
_ONLY_HEADERS = next(flag for flag, name, _ in PROPERTY_KINDS if name == "headers").to_bytes(_FLAG_BYTES, "big")
_KNOWN = sum(flag for flag, _, _ in PROPERTY_KINDS)


class OwnProperties:
    """The fields of the properties of some messages: which have a field, and where its value begins and ends.

    tables    the distinct headers
    """

    __slots__ = ("_data", "_fields", "_headers", "_stored", "tables")

    def __init__(self, data: Any, fields: dict[str, tuple[Any, Any, Any]]) -> None:
        self._data = data
        self._stored = np.frombuffer(data, np.uint8)
        self._fields = fields
        #: Of each message the place of its headers among `tables`; None if no message has headers.
        self._headers: Any = None
        self.tables: list[Table] = []
        if "headers" in fields:
            has, begins, ends = fields["headers"]
            encoded = _where(has, slices(data, begins, ends)).dictionary_encode()
            self._headers = encoded.indices
            self.tables = [_table(entries) for entries in encoded.dictionary.to_pylist()]

    @classmethod
    def of(cls, messages: Messages) -> OwnProperties | None:
        """The fields of these messages; None if the properties of one cannot be decoded."""
        stored = np.frombuffer(messages.data, np.uint8)
        at, ends = messages.starts + BEFORE_PROPERTIES, messages.property_ends()
        if not (ends - at >= _FLAG_BYTES).all():
            return None
        flags = _number(stored, at, _FLAG_BYTES)
        if (flags & ~_KNOWN).any():
            return None
        at = at + _FLAG_BYTES
        fields = {}
        for flag, name, kind in PROPERTY_KINDS:
            has = (flags & flag) != 0
            if not has.any():
                continue
            prefix = {"S": 1, "T": 4}.get(kind, 0)
            size = _number(stored, at, prefix) if prefix else np.int64(8 if kind == "L" else 1)
            begins = np.where(has, at + prefix, at)
            at = np.where(has, begins + size, at)
            fields[name] = has, begins, at
        if not (at == ends).all():  # a value that is too long moves the end of the last one as well
            return None
        try:
            return cls(messages.data, fields)
        except AmqpError:
            return None

    def text(self, name: str) -> Any:
        """A property that is a short string, as an array of Arrow; None if no message has it."""
        if name not in self._fields:
            return None
        has, begins, ends = self._fields[name]
        values = _where(has, slices(self._data, begins, ends))
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
            return pa.array(texts, pa.string())

    def number(self, name: str) -> tuple[Any, Any] | None:
        """Which messages have a property that is a number, and the numbers; None if no message has it."""
        if name not in self._fields:
            return None
        has, begins, ends = self._fields[name]
        return has, _number(self._stored, begins, int((ends - begins).max()))

    def timestamps(self, type: Any) -> Any:
        """The property `timestamp`; None if no message has it."""
        found = self.number("timestamp")
        if found is None:
            return None
        has, seconds = found
        is_time = has & (seconds >= 0) & (seconds < TOO_LATE)
        return _where(is_time, pa.array(np.where(is_time, seconds, 0) * 1_000_000).cast(type))

    def of_headers(self, value: Callable[[Table], Any], type: Any) -> Any:
        """An array of what `value` makes of the headers of each message; None if no message has headers."""
        if self._headers is None:
            return None
        return pa.array([value(table) for table in self.tables], type).take(self._headers)


def _table(entries: bytes) -> Table:
    found: Properties = decode_properties(_ONLY_HEADERS + len(entries).to_bytes(4, "big") + entries)
    assert found.headers is not None
    return found.headers


def _where(has: Any, values: Any) -> Any:
    """The values, null where a message has none."""
    return values if has.all() else pa.compute.if_else(pa.array(has), values, pa.scalar(None, values.type))


def _number(stored: Any, at: Any, size: int) -> Any:
    """The big-endian numbers of `size` bytes at these places. Places behind the end give any number."""
    found = np.zeros(len(at), np.int64)
    last = len(stored) - 1
    for place in range(size):
        found = (found << 8) | stored[np.minimum(at + place, last)]
    return found
