"""Bugs of queues that keep a message once, which `test_deduplication` and `test_mirrored_deduplication` must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .planting import bug

DEDUPLICATION_MUTANTS: dict[str, Callable[[], Any]] = {}
MIRRORED_DEDUPLICATION_MUTANTS: dict[str, Callable[[], Any]] = {}


@bug("which publishes a queue drops because it has had them", among=DEDUPLICATION_MUTANTS)
def duplicates_kept(drop: Any, self: Any, arrival: Any) -> None:
    """A queue drops nothing."""


@bug("which publishes a queue remembers after a crash", among=DEDUPLICATION_MUTANTS)
def publishes_forgotten_in_a_crash(record: Any, self: Any, first: int, digests: Any) -> None:
    """The journal gets no record of what the queue has accepted."""


@bug("which publishes a mirror remembers", among=MIRRORED_DEDUPLICATION_MUTANTS)
def mirrors_remember_nothing(remember: Any, self: Any, first: int, digests: Any, is_persistent: bool) -> None:
    """A mirror takes the messages and not their digests."""
