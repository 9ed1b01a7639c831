"""Bugs of bodies that several queues share, which the schedules of `test_shared_bodies` must find. Each docstring says
what the bug does.
"""

from __future__ import annotations

from typing import Any

from warren.tests.planting import Bugs

SHARED_BODY_MUTANTS = Bugs()


@SHARED_BODY_MUTANTS.bug("which references a message store counts")
def one_write_is_enough(write: Any, self: Any, client: str, messages: Any) -> None:
    """A store does not count the reference of the second queue."""
    known = [message_id for message_id, _ in messages if self.contains(message_id)]
    write(self, client, messages)
    self.remove(client, known)


@SHARED_BODY_MUTANTS.bug("which references a queue removes")
def removes_twice(remove: Any, self: Any, message_ids: Any) -> None:
    """A queue removes one reference too many."""
    ids = list(message_ids)
    remove(self, ids)
    remove(self, ids[:1])


@SHARED_BODY_MUTANTS.bug("which references a queue removes")
def forgets_to_remove(remove: Any, self: Any, message_ids: Any) -> None:
    """A queue removes no reference."""


@SHARED_BODY_MUTANTS.bug("which ids shared bodies get")
def the_same_id_again(take: Any, self: Any, *arguments: Any) -> int:
    """All channels give the same ids to bodies."""
    first = int(take(self, *arguments))
    # Ids of two channels differ only in the random bits above the counter.
    return first and 1 << 63 | first % (1 << 32)
