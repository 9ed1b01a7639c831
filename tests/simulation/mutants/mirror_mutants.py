"""Bugs of mirrored queues that schedules of three nodes must find. Each docstring says what the bug does."""

from __future__ import annotations

from typing import Any

from warren.tests.planting import Bugs

MIRROR_MUTANTS = Bugs()
mirror_bug = MIRROR_MUTANTS.bug


@mirror_bug("replica: which publishes all members have")
def confirmed_by_the_master_alone(reached: Any, self: Any, received: int, stored: int) -> None:
    """A publish is confirmed when the master has it, whether other replicas have it or not."""
    reached(self, 1 << 60, 1 << 60)


@mirror_bug("cluster: which publishes a new master has")
def all_that_is_asked_for_was_taken(of: Any, self: Any, channel_id: str, asked: Any) -> Any:
    """A new master answers that it has every publish that channels ask about."""
    return list(asked)


@mirror_bug("cluster: which publishes a new master has")
def nothing_was_taken(of: Any, self: Any, channel_id: str, asked: Any) -> Any:
    """A new master answers that it has none of the publishes that channels ask about, so they publish again what is in
    the queue.
    """
    return []


@mirror_bug("cluster: what is published again")
def nothing_is_published_again(of: Any, self: Any, queue_id: str, wanted: Any) -> Any:
    """A channel retains nothing, so a publish that a moved master has not accepted is refused."""
    return iter(())
