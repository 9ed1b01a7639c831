"""`IndexLog`: what an index needs of the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..messages.lives import Lives
from ..messages.run import Run


class IndexLog(Protocol):
    """The part of `LogWriter` that an index uses. The positions it returns only grow."""

    @property
    def durable(self) -> int: ...

    @property
    def position(self) -> int: ...

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int: ...

    def ack(self, queue: int, spans: Sequence[range]) -> int: ...

    def skip_to(self, queue: int, next_number: int) -> None: ...

    def reserve(self, queue: int, number: int) -> int: ...

    def sizes(self, queue: int, sizes: dict[int, int]) -> int: ...

    def sizes_later(self, queue: int, sizes: dict[int, int]) -> None: ...

    def returned(self, queue: int, returns: Mapping[int, int], is_repeated: bool = False) -> int: ...

    def lives(self, queue: int, lives: Lives) -> int: ...

    def delete(self, queue: int) -> int: ...
