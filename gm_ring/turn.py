"""`Turn`: what the owner of a ring's member has to do after some events (`RingMember.end_turn`)."""

from __future__ import annotations

from typing import NamedTuple

from .frames import Frame, Instruction
from .view import Member, Stream


class StreamDelivery(NamedTuple):
    """Instructions for the owner, with the positions from `first` on.

    A learner's first delivery has no instructions: `first` is where the stream begins for it.
    """

    stream: Stream
    first: int
    instructions: list[Instruction]


class Completed(NamedTuple):
    """For the owner of a speaker: the positions up to which all others that count have the stream.

    `serial` is that of the view for which this holds. In a new view the numbers begin again at 0.
    """

    stream: Stream
    received: int
    stored: int
    serial: int


class Turn(NamedTuple):
    """What the owner has to do after some calls, in the order of these fields."""

    frames: list[tuple[Member, Frame]]
    deliveries: list[StreamDelivery]
    completed: list[Completed]
