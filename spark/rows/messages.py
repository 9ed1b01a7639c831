"""`Messages`: some messages of one queue, as blocks, deliveries and files have them, before they become columns.

The contents stand one behind the other in one buffer. What a message came with beside its content (exchange, routing
keys, times) is that of its run, so nothing is made for each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

#: Bytes of a content besides its properties and its body: those of the header frame before the properties, all those of
#: the header frame, those of a body frame before its payload, and the end of a frame. An empty body has no frame.
BEFORE_PROPERTIES, HEADER_OVERHEAD, BODY_HEAD, FRAME_END = 19, 20, 7, 1


class RunDescription(NamedTuple):
    """What `size` messages in a row have in common.

    arrived, expires    microseconds since 1970; -1 if not known, or if they never expire
    properties          the encoded properties of each of them; None if that must be read in the contents
    """

    size: int
    exchange: str
    routing_keys: tuple[str, ...]
    redelivered: bool
    arrived: int = -1
    expires: int = -1
    properties: bytes | None = None


class Messages:
    """Messages of one queue in the order of their numbers.

    first, next    the range of numbers that this covers; a number in it without an entry belongs to no message
    numbers        the messages' numbers, int64
    data, bounds   the contents, and where each begins; one bound more than messages
    runs           the runs, which adjoin and cover all messages
    headers_only   whether the contents end behind the header frame
    """

    __slots__ = (
        "bounds",
        "data",
        "first",
        "headers_only",
        "next",
        "numbers",
        "runs",
        "_run_places",
        "_sizes",
        "_widths",
    )

    def __init__(
        self,
        first: int,
        next: int,
        numbers: Any,
        data: Any,
        bounds: Any,
        runs: Sequence[RunDescription],
        headers_only: bool = False,
    ) -> None:
        self.first = first
        self.next = next
        self.numbers = numbers
        self.data = data
        self.bounds = bounds
        self.runs = list(runs)
        self.headers_only = headers_only
        self._run_places: Any = None
        self._sizes: Any = None
        self._widths: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def starts(self) -> Any:
        """Where each content begins, int64."""
        return self.bounds[:-1]

    def body_sizes(self) -> Any:
        """Bytes of each body, int64."""
        if self._sizes is None:
            self._sizes = self._field(11, 8)
        return self._sizes

    def property_ends(self) -> Any:
        """Where the properties of each content end, int64; they begin BEFORE_PROPERTIES bytes behind its start."""
        if self._widths is None:
            self._widths = self._field(3, 4) - 12
        return self.starts + BEFORE_PROPERTIES + self._widths

    def _field(self, offset: int, size: int) -> Any:
        """The big-endian number of `size` bytes at this offset of each content."""
        if not len(self):
            return np.zeros(0, np.int64)
        # An array of the numbers that begin at every byte of the buffer. They overlap, and nothing is copied for it.
        count = memoryview(self.data).nbytes - size + 1
        everywhere = np.ndarray((count,), f">u{size}", self.data, strides=(1,))
        return everywhere[self.starts + offset].astype(np.int64)

    def properties(self) -> Any:
        """The encoded properties of each message, as a binary array of Arrow."""
        if self._have_shared_properties():
            return self.encoded_properties().dictionary_decode()
        return slices(self.data, self.starts + BEFORE_PROPERTIES, self.property_ends())

    def encoded_properties(self) -> Any:
        """The same as a dictionary array. Where runs have properties for all their messages, no content is read."""
        if self._have_shared_properties():
            return taken(pa.array([run.properties for run in self.runs], pa.binary()), self.run_places())
        return self.properties().dictionary_encode()

    def _have_shared_properties(self) -> bool:
        return all(run.properties is not None for run in self.runs)

    def bodies(self) -> Any:
        """The body of each message, as a binary array of Arrow; null where `headers_only`."""
        if self.headers_only:
            return pa.nulls(len(self), pa.binary())
        sizes = self.body_sizes()
        heads = self.property_ends() + (HEADER_OVERHEAD - BEFORE_PROPERTIES)
        lengths = self.bounds[1:] - heads
        is_single = lengths == sizes + BODY_HEAD + FRAME_END
        begins = np.where(is_single, heads + BODY_HEAD, heads)
        found = slices(self.data, begins, np.where(is_single, begins + sizes, heads))
        several = np.flatnonzero(~is_single & (sizes > 0))
        if not len(several):
            return found
        view = memoryview(self.data)
        joined = [_joined(view, int(heads[place]), int(self.bounds[place + 1])) for place in several]
        parts, at = [], 0
        for place, body in zip(several, joined):
            parts += [found.slice(at, place - at), pa.array([body], pa.binary())]
            at = place + 1
        return pa.concat_arrays([*parts, found.slice(at)])

    def of_runs(self, values: Sequence[Any], type: Any) -> Any:
        """An array with one value for each run, repeated for its messages."""
        array = pa.array(values, type)
        if len(self.runs) == 1:
            return pa.repeat(array[0], len(self)) if len(self) else array.slice(0, 0)
        return array.take(self.run_places())

    def run_places(self) -> Any:
        """The place of each message's run in `runs`, as an array of Arrow."""
        if self._run_places is None:
            sizes = [run.size for run in self.runs]
            self._run_places = pa.array(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
        return self._run_places

    def part(self, start: int, stop: int) -> Messages:
        """The messages at these places. The contents are not copied."""
        runs, at = [], 0
        for run in self.runs:
            low, high = max(start, at), min(stop, at + run.size)
            if low < high:
                runs.append(run._replace(size=high - low))
            at += run.size
        first = self.first if start == 0 else int(self.numbers[start])
        after = self.next if stop == len(self) else int(self.numbers[stop])
        numbers = self.numbers[start:stop]
        return Messages(first, after, numbers, self.data, self.bounds[start : stop + 1], runs, self.headers_only)


def joined_messages(parts: Sequence[Messages]) -> Messages:
    """Adjoining parts, as one `Messages`."""
    if len(parts) == 1:
        return parts[0]
    data, bounds, at = [], [], 0
    for part in parts:
        low, high = int(part.bounds[0]), int(part.bounds[-1])
        data.append(memoryview(part.data)[low:high])
        bounds.append(part.bounds[:-1] - low + at)
        at += high - low
    bounds.append(np.array([at], np.int64))
    return Messages(
        parts[0].first,
        parts[-1].next,
        np.concatenate([part.numbers for part in parts]),
        b"".join(data),
        np.concatenate(bounds),
        [run for part in parts for run in part.runs],
        parts[0].headers_only,
    )


def from_contents(
    first: int, next: int, numbers: Sequence[int], contents: Sequence[bytes], runs: Sequence[RunDescription]
) -> Messages:
    """`Messages` of contents that are separate bytes objects."""
    bounds = np.zeros(len(contents) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, contents), np.int64, len(contents)), out=bounds[1:])
    return Messages(first, next, np.array(numbers, np.int64), b"".join(contents), bounds, runs)


def slices(data: Any, begins: Any, ends: Any) -> Any:
    """The parts of a buffer from each of `begins` to its `ends`, as a binary array. They ascend and do not overlap.

    In an array whose offsets are all these places, every second element is such a part, so Arrow copies them in C.
    """
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    base = int(begins[0])
    offsets = np.empty(2 * count, np.int64)
    offsets[0::2] = begins - base
    offsets[1::2] = ends - base
    if offsets[-1] >= 1 << 31:
        raise ValueError("more than 2 GiB of contents at once")
    view = pa.py_buffer(memoryview(data)[base : int(ends[-1])])
    array = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets.astype(np.int32)), view])
    return array.take(pa.array(np.arange(0, 2 * count - 1, 2)))


def taken(values: Any, places: Any) -> Any:
    """The values that an array has at these places, as a dictionary array."""
    encoded = values.dictionary_encode()
    if not len(encoded.dictionary):
        return pa.nulls(len(places), encoded.type)
    if len(encoded.dictionary) == len(values):
        return pa.DictionaryArray.from_arrays(places, values)
    return pa.DictionaryArray.from_arrays(encoded.indices.take(places), encoded.dictionary)


def _joined(view: memoryview, position: int, end: int) -> bytes:
    """The body in the frames from `position` to `end`."""
    parts = []
    while position < end:
        size = int.from_bytes(view[position + 3 : position + 7], "big")
        parts.append(view[position + BODY_HEAD : position + BODY_HEAD + size])
        position += BODY_HEAD + size + FRAME_END
    return b"".join(parts)
