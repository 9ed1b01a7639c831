"""Takes many deliveries out of a connection's input at once, if they have the form of the one before.

Without blocks each message is a delivery: a method frame, a header frame with the number of the message among the
headers, and a body frame. Messages of one publisher often differ only in delivery tag, number and body. Then a loop of
a few steps finds where each delivery begins, and numpy compares and cuts all of them. Others are decoded one by one
(`plain_reading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..rows.messages import BODY_HEAD, FRAME_END, Messages, RunDescription, slices
from ..wire import BrokerConnection, PublishedAs

#: Where in a header frame the size of the body is, and how many bytes of a method frame are before and behind its
#: payload.
_SIZE_AT, _METHOD_HEAD, _METHOD_END = 11, 7, 1
_NUMBER_BYTES = 8


class SimilarDeliveries:
    """The deliveries that have the form of one which was just received.

    method      the payload of its method frame
    header      its header frame, in which the number has the offset `number_at`
    stripped    the header frame without the number
    """

    def __init__(
        self, published: PublishedAs, method: bytes, header: bytes, number_at: int, stripped: bytes, channel: int
    ) -> None:
        self._published = published
        self._header_at = _METHOD_HEAD + len(method) + _METHOD_END
        self._body_at = self._header_at + len(header)
        self._number_at = self._header_at + number_at
        self._stripped = np.frombuffer(stripped, np.uint8)
        begin = b"\1" + channel.to_bytes(2, "big") + len(method).to_bytes(4, "big") + method + b"\xce"
        body = b"\3" + channel.to_bytes(2, "big") + bytes(4)
        self._form = np.frombuffer(begin + header + body, np.uint8)
        tag_at = _METHOD_HEAD + 5 + method[4]
        #: Which bytes are the same in all of these deliveries: not the delivery tag, the sizes and the number.
        self._is_same = np.ones(len(self._form), bool)
        for at, size in (
            (tag_at, 8),
            (self._header_at + _SIZE_AT, 8),
            (self._number_at, _NUMBER_BYTES),
            (self._body_at + 3, 4),
        ):
            self._is_same[at : at + size] = False
        self._begin = begin[:tag_at]

    def take(self, connection: BrokerConnection, first: int) -> Messages | None:
        """Take such deliveries from the input, as far as it is complete; None if the next one has another form.

        The messages cover the numbers from `first` on.
        """
        received = connection.received()
        if received[: len(self._begin)] != self._begin:
            return None
        starts, ends = self._bounds(received)
        if not starts:
            return None
        data = np.frombuffer(received, np.uint8)
        begins = np.array(starts)
        rows = np.lib.stride_tricks.sliding_window_view(data, len(self._form))[begins]
        sizes = _numbers(rows, self._header_at + _SIZE_AT)
        is_like = (rows[:, self._is_same] == self._form[self._is_same]).all(axis=1)
        is_like &= sizes == np.array(ends) - begins - (len(self._form) + FRAME_END)
        count = len(begins) if is_like.all() else int(np.argmin(is_like))
        if not count:
            return None
        rows, begins, stops = rows[:count], begins[:count], np.array(ends[:count])
        numbers = _numbers(rows, self._number_at)
        heads = np.tile(self._stripped, (count, 1))
        at = self._header_at + _SIZE_AT
        heads[:, _SIZE_AT : _SIZE_AT + 8] = rows[:, at : at + 8]
        contents = pc.binary_join_element_wise(
            _fixed(heads), slices(received, begins + self._body_at, stops), pa.scalar(b"")
        )
        _, offsets, joined = contents.buffers()
        bounds = np.frombuffer(offsets, np.int32)[: count + 1].astype(np.int64)
        connection.skip(int(stops[-1]))
        run = RunDescription(
            count, self._published.exchange, (self._published.routing_key,), self._published.redelivered
        )
        return Messages(first, int(numbers[-1]) + 1, numbers, joined, bounds, [run])

    def _bounds(self, received: memoryview) -> tuple[Sequence[int], Sequence[int]]:
        """Where the deliveries begin and end that have arrived whole, if all have the form: body sizes tell it."""
        starts, ends = [], []
        size_at, rest = self._body_at + 3, self._body_at + BODY_HEAD + FRAME_END
        at, last = 0, len(received) - rest
        while at <= last:
            after = at + rest + int.from_bytes(received[at + size_at : at + size_at + 4], "big")
            if after > len(received):
                break
            starts.append(at)
            ends.append(after)
            at = after
        return starts, ends


def _numbers(rows: Any, at: int) -> Any:
    """The big-endian numbers of 8 bytes in these columns, int64."""
    return np.ascontiguousarray(rows[:, at : at + 8]).view(">i8")[:, 0].astype(np.int64)


def _fixed(rows: Any) -> Any:
    """A binary array of the rows of bytes."""
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])
