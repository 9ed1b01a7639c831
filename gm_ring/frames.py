"""What the members of a ring say to each other, as values.

`attachment` is the number that the receiver gave when it attached to the sender (`Attach`); what belongs to an earlier
one is dropped. `epoch` is that of the sender's view.
"""

from __future__ import annotations

from typing import NamedTuple

from .view import Stream

#: The kind of an instruction, which is one byte, and its content.
Instruction = tuple[int, bytes]

#: A stream, with the position up to which a member has received it, and up to which it is safe there.
Position = tuple[Stream, int, int]


class Pubs(NamedTuple):
    """To the right: instructions with the positions from `first` on. All members have received what is up to `done`."""

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


class Progress(NamedTuple):
    """From a learner to the member that it follows, under its own number of the attachment, and to those who speak:
    up to where it has received the stream, and up to where it is safe there.
    """

    attachment: int
    epoch: int
    stream: Stream
    received: int
    stored: int


class Attach(NamedTuple):
    """To the left: send from now on what is behind these positions. A member that knows no stream is new."""

    attachment: int
    epoch: int
    positions: list[Position]


class Seed(NamedTuple):
    """To a new follower: where its streams begin. It repairs others with what is behind `done`, and is told what is
    behind `start`: each is (stream, done, start).
    """

    attachment: int
    epoch: int
    starts: list[Position]


class Fenced(NamedTuple):
    """To a stranger: the sender has applied the view with this epoch, and the receiver has no part in it."""

    epoch: int


Frame = Pubs | Numbers | Progress | Attach | Seed | Fenced
