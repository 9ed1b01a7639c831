"""`KnownHeaders`: the content headers that a connection's publishers send again and again, and the patterns for them.

Headers of one length on one channel mostly have one shape: the same properties, with values of the same lengths. A
pattern for that shape checks a header in one step. Compiling one costs as much as reading many headers value by value,
so it is made only after some of them.
"""

from __future__ import annotations

from .header_patterns import HeaderPattern, headers_before_a_pattern
from .shapes import PublishShape
from .skimmer import is_special

#: Patterns that one connection may have compiled, so that no client can make the broker compile for ever.
_PATTERNS_MAX = 64
#: Lengths of headers that are remembered for one connection, on all its channels. At one more, all are forgotten.
_CANDIDATES_MAX = 256


class HeaderCandidate:
    """Headers of one length on one channel, and the pattern that was made of them."""

    __slots__ = ("count", "pattern", "props")

    def __init__(self) -> None:
        self.count = 0
        self.props = b""
        self.pattern: HeaderPattern | None = None


class KnownHeaders:
    """The headers of one connection."""

    __slots__ = ("_after", "_count", "_patterns_made", "by_channel")

    def __init__(self) -> None:
        #: By channel, and then by the length of the header frame's payload as it stands on the wire.
        self.by_channel: dict[int, dict[bytes, HeaderCandidate]] = {}
        self._count = 0  # candidates of all channels
        self._patterns_made = 0
        self._after = headers_before_a_pattern()

    def on(self, channel: int) -> dict[bytes, HeaderCandidate]:
        """The headers of `channel`, by the length of the header frame's payload as it stands on the wire."""
        found = self.by_channel.get(channel)
        if found is None:
            found = self.by_channel[channel] = {}
        return found

    def note(self, shape: PublishShape, length: bytes) -> None:
        """Count a header that was read without a pattern; make one when there were enough to pay for compiling it."""
        candidates = self.on(shape.channel)
        candidate = candidates.get(length)
        if candidate is None:
            self._count += 1
            if self._count > _CANDIDATES_MAX:
                self._count = 1
                for known in self.by_channel.values():
                    known.clear()
            candidate = candidates[length] = HeaderCandidate()
        if shape.props == candidate.props:
            shape.varies = False
            return
        candidate.props = shape.props
        candidate.count += 1
        if candidate.count >= self._after and self._patterns_made < _PATTERNS_MAX and not is_special(shape.key):
            candidate.count = 0
            candidate.pattern = HeaderPattern(shape.channel, shape.props)
            self._patterns_made += 1
