"""Bugs of limits: how often a message may be returned, what a full queue refuses, and what a policy may change."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from .one_node import bug


@bug("which returned messages are given up")
def given_up_too_late(returned: Any, self: Any, tags: Any) -> Any:
    """A message may be returned once more than the delivery limit."""
    limit = self.limit
    self.limit = limit and limit + 1
    try:
        return returned(self, tags)
    finally:
        self.limit = limit


@bug("which lives of a queue survive a crash")
def gap_forgotten(lives: Any, self: Any, *record: Any) -> int:
    """The journal gets no record that a queue has begun a new life, so the next crash forgets the gap in
    its numbers.
    """
    return int(self.position)


@bug("which returns of messages survive a crash")
def returns_forgotten_in_a_crash(returned: Any, self: Any, *record: Any) -> int:
    """The journal gets no record of a return."""
    return int(self.position)


@bug("what becomes of a publish that is refused")
def refused_without_dead_letter(refuse: Any, self: Any, arrival: Any) -> None:
    """A full queue with the overflow reject-publish-dlx refuses a publish and makes no dead letter of it."""
    limit = self._length_limit
    dead_letters_refused, limit.dead_letters_refused = limit.dead_letters_refused, False
    refuse(self, arrival)
    limit.dead_letters_refused = dead_letters_refused


@bug("whether an argument or a policy decides")
def policy_widens_limits(queue_settings: Any, arguments: Any, *policy: Any) -> Any:
    """The limits of a policy apply even if those of the queue itself are smaller."""
    settings = queue_settings(arguments, *policy)
    alone = queue_settings(type(arguments)(), *policy)
    wider = {field.name: getattr(alone, field.name) for field in fields(alone) if field.name.startswith("max_length")}
    return replace(settings, **{name: value for name, value in wider.items() if value is not None})
