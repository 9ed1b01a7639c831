"""`BlockRead`: a client's read of a queue in blocks (SP-11). It decodes the blocks and checks that they adjoin."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import unpack_from

from ...amqp.frames import content_body
from ..model.copies import PromiseBroken


@dataclass(slots=True, eq=False)
class BlockRead:
    """One reader. `bodies` are those of the messages that it has received. The next block must begin at the number
    `next`.
    """

    queue: str
    next: int = 0
    bodies: list[bytes] = field(default_factory=list)
    #: Whether the broker has cancelled the reader, as it does once the reader has received its range.
    has_ended: bool = False

    def receive(self, block: bytes) -> None:
        """Add the messages of a block. Raises PromiseBroken if it does not adjoin the one before."""
        is_uniform, first, stop, count, runs, _, origins_size = unpack_from("<IQQIIII", block, 4)
        if self.next and first != self.next:
            raise PromiseBroken(f"a block of queue '{self.queue}' begins at {first} where {self.next} was due")
        self.next = stop
        at = _aligned(64 + 40 * runs + origins_size)
        width = 1 if is_uniform else count
        sizes = unpack_from(f"<{width}I", block, at)
        at = _aligned(at + 4 * width)
        for size in sizes * count if is_uniform else sizes:
            self.bodies.append(content_body(block[at : at + size]))
            at += size


def _aligned(position: int) -> int:
    return -(-position // 8) * 8
