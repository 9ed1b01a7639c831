"""`TurnWork`: how much a queue may still do in its present turn.

Nothing interrupts a turn, so what a client asks for is done in turns that each touch a bounded number of messages, and
other processes have turns in between. One message of a client may settle, purge or requeue millions of messages, and
one turn may handle many messages: their work is added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...runtime.coroutines import Slices

#: Messages that a turn may settle or move one by one. Each takes up to 10 µs, if it splits a run and makes another one.
TURN_MESSAGES = 500

#: Messages in a row, which are settled and moved by slices of lists, cost a quarter of others at most.
IN_A_ROW = 4


class TurnWork:
    """What is left of the work of a turn; zero or less once the turn has done enough."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = TURN_MESSAGES

    def pause(self) -> Slices[None]:
        """Wait for another turn if this one has done enough. For handlers that work in slices."""
        if self.left <= 0:
            yield
            self.left = TURN_MESSAGES


def cost(tags: Sequence[int]) -> int:
    """The work of settling these ack tags."""
    return 1 + len(tags) // IN_A_ROW if type(tags) is range and tags.step == 1 else len(tags)


def portions(pieces: Sequence[Sequence[int]], each: bool = False) -> Iterator[list[Sequence[int]]]:
    """The ack tags, in their order, in portions for one turn each. With `each`, those in a row cost as much as others."""
    portion: list[Sequence[int]] = []
    left = TURN_MESSAGES
    for piece in pieces:
        tags = piece
        most = IN_A_ROW if type(tags) is range and tags.step == 1 and not each else 1
        while tags:
            taken = tags[: left * most]
            tags = tags[left * most :]
            portion.append(taken)
            left -= 1 + len(taken) // most
            if left <= 0:
                yield portion
                portion, left = [], TURN_MESSAGES
    if portion:
        yield portion
