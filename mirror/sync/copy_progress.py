"""`CopyProgress`: how far the copy of one learner is (CL-90)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...actors.contracts.info_items import InfoItems

#: How many samples the rates are made of. There is one for each second, so they are those of the last ten seconds.
SAMPLES = 11


class CopyProgress:
    """Counts the messages that a learner has compared and copied. `sample` is called each second."""

    __slots__ = ("_samples", "compared", "copied", "copied_bytes", "left")

    def __init__(self) -> None:
        #: Messages of an earlier life that were compared, messages that were copied, and the bytes of their chunks.
        self.compared = self.copied = self.copied_bytes = 0
        #: Messages that the learner lacks; None if the master has not answered how many there are.
        self.left: int | None = None
        #: Of the last seconds: the time, the bytes copied by then, and the messages that were left.
        self._samples: deque[tuple[float, int, int | None]] = deque(maxlen=SAMPLES)

    def took(self, messages: int, size: int) -> None:
        """Note that a chunk with so many messages and bytes was copied."""
        self.copied += messages
        self.copied_bytes += size

    def sample(self, now: float, left: int | None) -> None:
        """Note how many messages are left now."""
        self.left = left
        self._samples.append((now, self.copied_bytes, left))

    def pause(self, left: int | None) -> None:
        """Note that the learner copies nothing for now, so that the copy has no rate."""
        self.left = left
        self._samples.clear()

    @property
    def bytes_per_second(self) -> int:
        """The bytes that were copied in each of the last seconds."""
        if not self._samples:
            return 0
        (first, before, _), (last, now, _) = self._samples[0], self._samples[-1]
        return round((now - before) / (last - first)) if last > first else 0

    @property
    def seconds_left(self) -> int | None:
        """An estimate from how the number of missing messages has fallen; None as long as it does not fall."""
        known = [(now, left) for now, _, left in self._samples if left is not None]
        if not known or self.left is None:
            return None
        (first, before), (last, left) = known[0], known[-1]
        if left >= before:
            return None if left else 0
        return round(left * (last - first) / (before - left))

    def items(self) -> InfoItems:
        """The progress for operators."""
        return {
            "compared": self.compared,
            "copied": self.copied,
            "copied_bytes": self.copied_bytes,
            "left": self.left,
            "bytes_per_second": self.bytes_per_second,
            "seconds_left": self.seconds_left,
        }
