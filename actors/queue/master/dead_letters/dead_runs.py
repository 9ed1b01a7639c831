"""How messages that die together are cut: `of_frames` by the frames of the journal, `equal_runs` by dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from .....amqp.frames import content_properties
from .....store.messages.message import QueuedMessage

#: Bytes of dead messages that are handed over in one frame of the journal, unless a single message has more. Recovery
#: reads a frame as a whole.
FRAME_BYTES = 1 << 20


def of_frames(messages: Sequence[QueuedMessage]) -> Iterator[Sequence[QueuedMessage]]:
    """The messages, cut so that each part has `FRAME_BYTES` or a little more."""
    start = size = 0
    for at, message in enumerate(messages, 1):
        size += len(message.content)
        if size >= FRAME_BYTES:
            yield messages[start:at]
            start, size = at, 0
    if start < len(messages):
        yield messages[start:]


def equal_runs(messages: Sequence[QueuedMessage]) -> Iterator[tuple[bytes, list[QueuedMessage]]]:
    """The messages, cut into runs of one origin and equal properties, each with these properties.

    The messages of a run become equal dead letters (their time is in seconds), which are computed once for all of them.
    """
    for (_, props), group in groupby(messages, key=_origin_and_properties):
        yield props, list(group)


def _origin_and_properties(message: QueuedMessage) -> tuple[int, bytes]:
    return id(message.origin), content_properties(message.content)
