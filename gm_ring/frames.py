"""The frames that the members of a ring send to each other, as values.

`attachment` is the number that the receiver chose when it attached to the sender (`Attach`); it drops frames with an
earlier number. `epoch` is that of the sender's view.
"""

from __future__ import annotations

from typing import NamedTuple

from .view import Stream

#: The kind of an instruction, which is one byte, and its content.
Instruction = tuple[int, bytes]

#: A stream, with the position up to which a member has received it, and up to which it is safe there.
Position = tuple[Stream, int, int]


class Pubs(NamedTuple):
    """To the right: instructions with the positions from `first` on. All members have received those up to `done`."""

    attachment: int
    epoch: int
    stream: Stream
    first: int
    done: int
    instructions: list[Instruction]


class Numbers(NamedTuple):
    """To the right: up to where the sender and all before it, from the speaker's right neighbour on, have received the
    stream, and up to where it is safe at all of them.
    """

    attachment: int
    epoch: int
    stream: Stream
    received: int
    stored: int


class StreamProgress(NamedTuple):
    """From a learner to the member that it follows and to the speakers: up to where it has received the stream, and up
    to where the stream is safe there. `attachment` is the learner's own number.
    """

    attachment: int
    epoch: int
    stream: Stream
    received: int
    stored: int


class Attach(NamedTuple):
    """To the left: send the instructions behind these positions from now on. A new member has no positions."""

    attachment: int
    epoch: int
    positions: list[Position]


class Seed(NamedTuple):
    """To a learner that attached without positions: where its streams begin, as (stream, done, start) each. The learner
    receives the instructions behind `done`, and keeps them because its right neighbour may need them; it delivers only
    those behind `start` to its owner.
    """

    attachment: int
    epoch: int
    starts: list[Position]


class Fenced(NamedTuple):
    """To a replica that is not in the sender's view: the view that the sender has applied has this epoch."""

    epoch: int


Frame = Pubs | Numbers | StreamProgress | Attach | Seed | Fenced
