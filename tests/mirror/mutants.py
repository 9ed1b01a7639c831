"""Bugs of replicas that random plans must find. Each replaces one decision by a wrong one (`warren.seams`). Each
docstring says what the bug does.
"""

from __future__ import annotations

from typing import Any

from warren.tests.planting import Bugs

MUTANTS = Bugs()
bug = MUTANTS.bug


@bug("replica: which publishes all members have")
def confirmed_before_it_is_stored(reached: Any, self: Any, received: int, stored: int) -> None:
    """A persistent publish is confirmed when all members have received it, although it may not be on their disks."""
    reached(self, received, received)


@bug("replica: what a member and all before it have")
def confirmed_without_the_last_member(numbers: Any, self: Any, stream: Any, state: Any) -> Any:
    """The last member of a ring reports that it has stored what it has received."""
    received, stored = numbers(self, stream, state)
    return (received, received) if self.me == self.view.members[-1] else (received, stored)


@bug("replica: what a member keeps")
def kept_until_it_is_sent(forget: Any, self: Any) -> None:
    """A member drops what it has sent to its neighbour, before all members have it."""
    for state in self._streams.values():
        state.retained.cut(state.retained.last)


@bug("replica: which of its own messages a learner keeps")
def what_has_left_is_kept(only: Any, self: Any, wanted: list[range]) -> Any:
    """A learner keeps all that its disk has, including messages that have left the queue or that no other
    replica has.
    """
    kept, _, missing = only(self, wanted)
    return kept, [], missing


@bug("replica: which publishes a learner takes from the stream")
def all_publishes_taken_while_copying(is_due: Any, self: Any, position: int, instruction: Any) -> bool:
    """A learner takes publishes from the stream that a later chunk contains as well."""
    return True


@bug("replica: where a new master goes on")
def numbers_go_on_after_a_promotion(begin_anew: Any, self: Any) -> None:
    """A new master gives numbers that the previous master may have given, and flags nothing as redelivered."""


@bug("replica: whether a learner has what was confirmed")
def admitted_before_it_is_level(is_level: Any, self: Any, told: int) -> bool:
    """A learner is proposed for the ring before it has everything that was confirmed."""
    return True


@bug("replica: which learners the master counts")
def counted_only_when_admitted(view: Any, self: Any, counted: Any = frozenset(), serial: int = 0) -> Any:
    """The master does not wait for a learner that it has proposed for the ring until the log has admitted it."""
    return view(self, frozenset(), serial)
