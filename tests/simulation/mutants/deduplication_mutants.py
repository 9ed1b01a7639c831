"""Bugs of deduplicating queues that `test_deduplication` and `test_mirrored_deduplication` must find. Each docstring
says what the bug does.
"""

from __future__ import annotations

from typing import Any

from warren.tests.planting import Bugs

DEDUPLICATION_MUTANTS = Bugs()
MIRRORED_DEDUPLICATION_MUTANTS = Bugs()


@DEDUPLICATION_MUTANTS.bug("which publishes a queue drops because it has had them")
def duplicates_kept(drop: Any, self: Any, arrival: Any) -> None:
    """A queue drops no duplicate."""


@DEDUPLICATION_MUTANTS.bug("which publishes a queue remembers after a crash")
def publishes_forgotten_in_a_crash(record: Any, self: Any, first: int, digests: Any) -> None:
    """The journal gets no record of which messages the queue has accepted."""


@MIRRORED_DEDUPLICATION_MUTANTS.bug("which publishes a mirror remembers")
def mirrors_remember_nothing(remember: Any, self: Any, first: int, digests: Any, is_persistent: bool) -> None:
    """A mirror stores the messages and not their digests."""
