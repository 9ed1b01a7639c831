"""The state that an index keeps in memory for each of its segments: two integers, and acks that its file lacks."""

from __future__ import annotations

from .segment_file import count_marked


class Segment:
    """One segment of an index.

    unacked         entries that are not acked, in the file or in the flush under way
    size            bytes of the file; 0 if there is no file
    acks            entries of the file whose acks neither the file nor the flush under way has
    acks_in_flight  acks that the flush under way writes
    is_damaged      the next flush must rewrite the file without the damage
    present         None until damage was found, then one byte a number: 1 if its entry is whole or was added later;
                    `unacked` counts no other entry
    content         the bytes of the file if the scan has read all of them and the recovery that follows at once reads
                    them again
    """

    __slots__ = ("unacked", "size", "acks", "acks_in_flight", "content", "is_damaged", "present")

    def __init__(
        self, size: int = 0, unacked: int = 0, acks: list[range] | None = None, content: bytes | None = None
    ) -> None:
        self.size = size
        self.unacked = unacked
        self.acks = [] if acks is None else acks
        self.acks_in_flight: list[range] = []
        self.is_damaged = False
        self.present: bytearray | None = None
        self.content = content

    def ack(self, span: range, base: int) -> None:
        """Note acks of entries that the file has, or gets from the flush under way. `base` is its lowest number."""
        self.unacked -= len(span) if self.present is None else count_marked(self.present, span, base)
        assert self.unacked >= 0, "an entry was acked twice"
        last = self.acks[-1] if self.acks else None
        if last is not None and last.step == span.step == 1 and last.stop == span.start:
            self.acks[-1] = range(last.start, span.stop)
        else:
            self.acks.append(span)
