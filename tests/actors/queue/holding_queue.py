"""`HoldingQueue`: a backing queue that wraps another one, as that of a mirrored queue does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.store.messages.parts import Part
from warren.store.queue.backing_queue import BackingQueue


class HoldingQueue:
    """Passes every operation of `BackingQueue` on to `inner`, and reports nothing as safe until `release`.

    It has no other operations, so a queue's process that used another one would fail.
    """

    def __init__(self, inner: BackingQueue) -> None:
        self.inner = inner
        self.is_released = False
        #: The accepted publishes: the operation, the numbers it returned, whether they are to be reported, and the
        #: parts.
        self.taken: list[tuple[str, range, bool, list[Part]]] = []
        self._held: list[tuple[int, int]] = []

    def drain_confirmed(self) -> list[tuple[int, int]]:
        self._held += self.inner.drain_confirmed()
        if not self.is_released:
            return []
        released, self._held = self._held, []
        return released

    def release(self) -> None:
        self.is_released = True

    def publish(self, origins: Any, contents: Any, *fields: Any) -> range:
        return self._took("publish", self.inner.publish(origins, contents, *fields), *fields[2:4])

    def publish_delivered(self, origins: Any, contents: Any, *fields: Any) -> range:
        return self._took("publish_delivered", self.inner.publish_delivered(origins, contents, *fields), *fields[2:4])

    def discard(self, origins: Any, count: int, confirm: bool, parts: list[Part], is_recorded: bool = False) -> range:
        return self._took("discard", self.inner.discard(origins, count, confirm, parts), confirm, parts)

    def _took(self, name: str, numbers: range, confirm: bool, parts: list[Part]) -> range:
        self.taken.append((name, numbers, confirm, list(parts)))
        return numbers


def _passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *fields: getattr(self.inner, name)(*fields)


for _name in [*BackingQueue.__abstractmethods__, "droppable", "fetch_dropped"]:
    if _name not in vars(HoldingQueue):
        setattr(HoldingQueue, _name, _passed_on(_name))
