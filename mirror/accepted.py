"""How the master of a mirrored queue that deduplicates reports to its mirrors what it has accepted (SP-31)."""

from __future__ import annotations

from collections.abc import Sequence

from . import instructions
from .backing.mirrored_queue import MirroredQueue


def tell_accepted(mirrored: MirroredQueue, first: int, digests: Sequence[bytes], is_persistent: bool) -> None:
    """Send the mirrors the digests of messages that the queue has just accepted under the numbers from `first` on.

    If the last instruction publishes these messages, it gets the digests too, so that no mirror ever has a message
    without its digest, or the other way round. Otherwise the messages have left already, and only the digests are sent.
    """
    if not mirrored.is_followed:
        return
    out = mirrored.out
    if out and out[-1][0] == instructions.PUBLISH and instructions.first_number(out[-1][1]) == first:
        out[-1] = instructions.publish_once(out[-1][1], digests)
    else:
        out.append(instructions.accepted(first, digests, is_persistent))
