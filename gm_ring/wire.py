"""Packs the frames of a ring into integers and bytes, which any carrier of messages between nodes can write.

A packed frame has three parts: integers (its kind, then its numbers), one byte for the kind of each instruction, and
the contents of the instructions. The name of the stream is not packed, so this is for rings with one stream only.
"""

from __future__ import annotations

from collections.abc import Sequence

from .frames import Attach, Fenced, Frame, Numbers, Pubs, Seed, StreamProgress

#: The name of the one stream of a ring whose first member is its only speaker.
ONLY = ""

_PUBS, _NUMBERS, _PROGRESS, _ATTACH, _SEED, _FENCED = range(1, 7)

#: Integers, kinds of instructions, contents of instructions.
Packed = tuple[list[int], bytes, list[bytes]]


def packed(frame: Frame) -> Packed:
    """The frame as plain values."""
    if isinstance(frame, Pubs):
        kinds = bytes([kind for kind, _ in frame.instructions])
        contents = [content for _, content in frame.instructions]
        return [_PUBS, frame.attachment, frame.epoch, frame.first, frame.done], kinds, contents
    if isinstance(frame, Numbers | StreamProgress):
        kind = _NUMBERS if isinstance(frame, Numbers) else _PROGRESS
        return [kind, frame.attachment, frame.epoch, frame.received, frame.stored], b"", []
    if isinstance(frame, Fenced):
        return [_FENCED, frame.epoch], b"", []
    positions = frame.positions if isinstance(frame, Attach) else frame.starts
    kind = _ATTACH if isinstance(frame, Attach) else _SEED
    return [kind, frame.attachment, frame.epoch, *[number for item in positions for number in item[1:]]], b"", []


def unpacked(integers: Sequence[int], kinds: bytes, contents: Sequence[bytes]) -> Frame | None:
    """The frame with these values; None if no frame has them."""
    match list(integers):
        case [1, attachment, epoch, first, done] if len(kinds) == len(contents):
            return Pubs(attachment, epoch, ONLY, first, done, list(zip(kinds, contents)))
        case [2, attachment, epoch, received, stored]:
            return Numbers(attachment, epoch, ONLY, received, stored)
        case [3, attachment, epoch, received, stored]:
            return StreamProgress(attachment, epoch, ONLY, received, stored)
        case [4, attachment, epoch]:
            return Attach(attachment, epoch, [])
        case [4, attachment, epoch, received, stored]:
            return Attach(attachment, epoch, [(ONLY, received, stored)])
        case [5, attachment, epoch, base, start]:
            return Seed(attachment, epoch, [(ONLY, base, start)])
        case [6, epoch]:
            return Fenced(epoch)
    return None
