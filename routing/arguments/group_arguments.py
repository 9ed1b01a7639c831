"""The arguments of group queues: which queues are the members of a group, and which of them is next (QP-75).

    x-group-members         the names of queues, in order; or
    x-group-pattern         a regular expression: the members are the queues of the virtual host whose names match it
    x-group-schedule        `strict`: always the first member that has a message; `fair`: the members take turns;
                            `weighted`: they take turns, in which a member delivers a number of batches, its weight
    x-group-batch           messages that a member of weight 1 delivers in its turn
    x-group-weights         an object: name of a queue to its weight
    x-group-starve-after-ms with `strict`: a member that has waited this many ms delivers the next batch
    x-group-source-header   whether deliveries have the header `x-warren-queue` with the name of the member

A group stores nothing, so nothing is routed to it. All functions are pure. Metadata checks that the pattern is valid,
because regular expressions belong to `definitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ..phrases import queue_phrase, value_text
from ..queue_types import CLASSIC, GROUP, QUORUM
from ..rows import QueueRow
from .checks import INTEGER_LETTERS, Reason, unacceptable

MEMBERS, PATTERN = "x-group-members", "x-group-pattern"

#: The argument of the consumers by which a group takes messages from its members. Its value is the group's name, so
#: listings of a member's consumers show the group.
GROUP_ARGUMENT = "x-warren-group"

GroupSchedule = Literal["strict", "fair", "weighted"]

#: How many members a declaration may name.
MAX_MEMBERS = 1_000

_SCHEDULES = (b"strict", b"fair", b"weighted")


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """The decoded arguments of a group. It has either `members` or a `pattern`."""

    members: tuple[str, ...] = ()
    pattern: str | None = None
    schedule: GroupSchedule = "fair"
    batch: int = 1
    weights: Mapping[str, int] = field(default_factory=dict)
    #: Seconds; 0: a member may wait for ever.
    starve_after: float = 0.0
    has_source_header: bool = False

    def weight_of(self, name: str) -> int:
        return self.weights.get(name, 1) if self.schedule == "weighted" else 1


def group_arguments(arguments: Table) -> GroupArguments:
    """Decode arguments that `check_queue_declaration` has accepted."""
    given: dict[str, Any] = {}
    for name, _, value in reversed(arguments):  # reversed, so that the first of repeated names counts
        if name == MEMBERS:
            given["members"] = tuple(dict.fromkeys(value_text(member) for _, member in value))
        elif name == PATTERN:
            given["pattern"] = value_text(value)
        elif name == "x-group-schedule":
            given["schedule"] = cast(GroupSchedule, value_text(value))
        elif name == "x-group-batch":
            given["batch"] = value
        elif name == "x-group-weights":
            given["weights"] = {queue: weight for queue, _, weight in reversed(value)}
        elif name == "x-group-starve-after-ms":
            given["starve_after"] = value / 1000
        elif name == "x-group-source-header":
            given["has_source_header"] = value
    return GroupArguments(**given)


def may_be_member(row: QueueRow) -> bool:
    """Whether a group may deliver the messages of this queue.

    Groups and logical queues store no messages, messages of a stream cannot be taken from it, and an exclusive queue
    serves its own connection only.
    """
    return row.type in (CLASSIC.name, QUORUM.name) and not row.shards and row.exclusive_owner is None


def check_not_group(row: QueueRow | None) -> None:
    """Raise AmqpError 403 if the queue is a group: the operation needs a queue that stores messages (QP-76)."""
    if row is not None and row.type == GROUP.name:
        raise AmqpError(ACCESS_REFUSED, f"queue '{row.name}' is a group and stores nothing")


# -- checks of the arguments ---


def check_members(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "A":
        return unacceptable(letter)
    for item_letter, item in value:
        if item_letter != "S" or not item:
            return '"expected an array of names of queues"'
    if not 0 < len(value) <= MAX_MEMBERS:
        return f'"expected from 1 to {MAX_MEMBERS} names of queues, got {len(value)}"'
    if arguments.get(PATTERN) is not None:
        return f"\"a group has either named members or a pattern; leave out '{MEMBERS}' or '{PATTERN}'\""
    return ""


def check_has_members(row: QueueRow) -> None:
    """Raise AmqpError 406 for a group that has neither named members nor a pattern."""
    if row.type == GROUP.name and row.arguments.get(MEMBERS) is None and row.arguments.get(PATTERN) is None:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"{queue_phrase(row.vhost, row.name)} is a group without members: declare it with '{MEMBERS}', an array of "
            f"names of queues, or with '{PATTERN}', a regular expression",
        )


def check_schedule(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    is_known = value in _SCHEDULES
    return "" if is_known else f"\"expected 'strict', 'fair' or 'weighted', got '{value_text(value)}'\""


def check_weights(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "F":
        return unacceptable(letter)
    for queue, weight_letter, weight in value:
        if weight_letter not in INTEGER_LETTERS or weight < 1:
            return f"\"the weight of queue '{queue}' must be an integer from 1 on\""
    return ""
