"""What the master of a mirrored queue sends its mirrors, as instructions of a ring (CL-62).

| kind | content | a mirror |
|---|---|---|
| PUBLISH | who published, in msgpack behind its size (u32), and a run (`records.encode_run`) | takes the run |
| REMOVE | spans of numbers | forgets these messages; a number that it does not have was removed before |
| PURGE | spans of numbers | forgets all messages but these |
| ANSWERED | msgpack: channels, each with a number | forgets publishes of the channel below the number |
| TAKEN | msgpack: channels, each with ranges of publish numbers | remembers that these were taken |
| RESERVE | u64 | gives no number below this one if it becomes the master |
| SEGMENT | nothing | begins a segment of the stream with the next run |
| KEPT_FROM | u64 | drops the segments of the stream whose messages are all below this number |
| PUBLISH_ONCE | digests behind their count (u32), and the content of a PUBLISH | takes the run, remembers the digests |
| ACCEPTED | whether persistent (u8), and digests (`digest_records`) | remembers messages that have left already |
| WINDOW | u64 | remembers this many of the last publishes from now on; 0: none |
| RETURNED | numbers and how often (`records.encode_returns`) | remembers how often these messages were returned |
| LIVES | the lives of the queue (`encode_lives`) | has these lives from now on |

Mirrors have the same numbers as the master, so an instruction names a message by its number. No instruction is about
consumers: mirrors do not distinguish messages that the master has delivered from those that are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct

import msgpack  # type: ignore[import-untyped]

from ..gm_ring.frames import Instruction
from ..store.deduplication.digest_records import decode_digests, encode_digests, split_digests
from ..store.deduplication.window import DIGEST_SIZE
from ..store.messages.lives import Lives, decode_lives, encode_lives
from ..store.messages.message import Expiries, Origins
from ..store.messages.parts import Part
from ..store.messages.records import (
    RUN,
    decode_returns,
    decode_runs,
    decode_spans,
    encode_returns,
    encode_run,
    encode_spans,
)
from ..store.messages.run import Run
from ..store.messages.spans import spans

#: The kinds. 5 was used by builds that were not released.
PUBLISH, REMOVE, PURGE, RESERVE, RETURNED, SEGMENT, KEPT_FROM, ANSWERED, TAKEN = 1, 2, 3, 4, 6, 7, 8, 9, 10
PUBLISH_ONCE, ACCEPTED, WINDOW, LIVES = 11, 12, 13, 14

_SIZE = Struct(">I")
_NUMBER = Struct(">Q")


def publish(
    first: int,
    origins: Origins,
    contents: Sequence[bytes],
    body_bytes: int,
    expiries: Expiries,
    parts: Sequence[Part],
    redelivered: bool = False,
) -> Instruction:
    """A run that was published, under the number of its first message."""
    packed: bytes = msgpack.packb([part for part in parts if part[0]])
    run = Run(first, list(contents), origins, expiries, redelivered, body_bytes)
    return PUBLISH, b"".join([_SIZE.pack(len(packed)), packed, *encode_run(run, False)])


def publish_once(content: bytes, digests: Sequence[bytes]) -> Instruction:
    """The run of a PUBLISH with this content to a queue that deduplicates, and the digest of each message."""
    return PUBLISH_ONCE, b"".join([_SIZE.pack(len(digests)), *digests, content])


def published_once(content: bytes) -> tuple[list[bytes], bytes]:
    """The digests of the messages in a PUBLISH_ONCE, and the content of its PUBLISH."""
    end = _SIZE.size + _SIZE.unpack_from(content)[0] * DIGEST_SIZE
    return split_digests(content[_SIZE.size : end]), content[end:]


def run_in(instruction: Instruction) -> bytes | None:
    """The content of the PUBLISH in an instruction; None if it publishes nothing."""
    kind, content = instruction
    return content if kind == PUBLISH else published_once(content)[1] if kind == PUBLISH_ONCE else None


def accepted(first: int, digests: Sequence[bytes], is_persistent: bool) -> Instruction:
    """The digests of messages that the queue has accepted and does not have any more. `first` is the number of the
    first one, or a number that belongs to no message (`digest_records.COPIED`).
    """
    return ACCEPTED, bytes([is_persistent]) + encode_digests(first, digests)


def accepted_in(content: bytes) -> tuple[int, list[bytes], bool]:
    """What `accepted` was called with."""
    return *decode_digests(content[1:]), bool(content[0])


def window(size: int) -> Instruction:
    """The queue remembers the last `size` publishes from now on; 0: it does not deduplicate any more."""
    return WINDOW, _NUMBER.pack(size)


def published(content: bytes) -> tuple[list[Part], Run]:
    """Who published a run, and the run."""
    run, _ = next(decode_runs(content[_start_of_run(content) :]))
    return publishers(content), run


def publishers(content: bytes) -> list[Part]:
    """Who published a run."""
    return [tuple(part) for part in msgpack.unpackb(content[_SIZE.size : _start_of_run(content)])]


def _start_of_run(content: bytes) -> int:
    size: int = _SIZE.unpack_from(content)[0]
    return _SIZE.size + size


def first_number(content: bytes) -> int:
    """The number of the first message of a run that was published."""
    first: int = RUN.unpack_from(content, _start_of_run(content))[0]
    return first


def remove(tags: Sequence[int]) -> Instruction:
    """Messages that have left the queue."""
    return REMOVE, encode_spans(spans(tags))


def removed(content: bytes) -> Iterator[range]:
    """The numbers of messages that have left."""
    return iter(decode_spans(content))


def purge(kept: Sequence[int]) -> Instruction:
    """All messages have left but these."""
    return PURGE, encode_spans(spans(kept))


def reserve(number: int) -> Instruction:
    """The master may have given all numbers below this one."""
    return RESERVE, _NUMBER.pack(number)


def returned(returns: Mapping[int, int]) -> Instruction:
    """How often messages were returned to the queue by now, by number."""
    return RETURNED, encode_returns(returns)


def returns_in(content: bytes) -> dict[int, int]:
    """How often messages were returned, by number."""
    return decode_returns(content)


def lives(of_queue: Lives) -> Instruction:
    """The lives of the queue: which numbers masters have left out."""
    return LIVES, encode_lives(of_queue)


def lives_in(content: bytes) -> Lives:
    """The lives of the queue."""
    return decode_lives(content)


def segment() -> Instruction:
    """The next run that is published begins a segment of the stream."""
    return SEGMENT, b""


def kept_from(number: int) -> Instruction:
    """The segments of the stream whose messages are all below this number have gone."""
    return KEPT_FROM, _NUMBER.pack(number)


def answered(floors: Mapping[str, int]) -> Instruction:
    """Channels, by id, await no answer for publishes below these numbers."""
    return ANSWERED, msgpack.packb(list(floors.items()))


def answered_in(content: bytes) -> list[tuple[str, int]]:
    """Channels, and the numbers below which they await nothing."""
    return [(channel_id, floor) for channel_id, floor in msgpack.unpackb(content)]


def taken(publishes: Iterable[tuple[str, Sequence[tuple[int, int]]]]) -> Instruction:
    """Publishes that were taken, by channel."""
    return TAKEN, msgpack.packb(list(publishes))


def taken_in(content: bytes) -> Iterator[tuple[str, int, int]]:
    """Publishes that were taken: the channel, and the first and the last number."""
    for channel_id, ranges in msgpack.unpackb(content):
        for first, last in ranges:
            yield channel_id, first, last


def number_in(content: bytes) -> int:
    """The number in a RESERVE, KEPT_FROM or WINDOW."""
    found: int = _NUMBER.unpack(content)[0]
    return found
