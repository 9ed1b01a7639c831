"""`Purge`: a purge that a mirror carries out (`MirroredQueue.keep_only`), perhaps after it has read its disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Purge(NamedTuple):
    """See the module."""

    #: The numbers of the messages that stay.
    kept: frozenset[int]
    #: By level, the number behind the last message that had come before the purge.
    ends: Mapping[int, int]
