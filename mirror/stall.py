"""Stalled rings: when the numbers of a ring stand still, and which member holds them up (CL-80).

`StallWatch` notices that something is outstanding and nothing has risen for a while. Then the master asks the others
how far they are, and `victim` chooses the member that has to leave the ring, so that publishes are confirmed again. If
no member is ahead of another one, none of them holds up the ring, and nobody is evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..routing.rows import Member


class Standing(NamedTuple):
    """How far a member is: up to which position it has the stream, and has it safe, and how many instructions its right
    neighbour has not been sent.
    """

    received: int
    safe: int
    waiting: int


class StallWatch:
    """Whether the numbers of a ring have stood still for a while, though something is outstanding."""

    __slots__ = ("_numbers", "_since")

    def __init__(self) -> None:
        self._numbers: tuple[int, int] | None = None
        self._since = 0.0

    def is_stalled(self, now: float, is_outstanding: bool, numbers: tuple[int, int], seconds: float) -> bool:
        """`numbers` are what all have received and stored; `seconds` is how long they may stand still."""
        if not is_outstanding:
            self._numbers = None
        elif numbers != self._numbers:
            self._numbers, self._since = numbers, now
        return is_outstanding and now - self._since >= seconds


def victim(ring: Sequence[Member], standings: Mapping[Member, Standing]) -> tuple[Member, str] | None:
    """The member that holds up the ring, and what it fails to do; None if none is behind another one.

    The ring begins with the master, whose `safe` does not count. A member without a standing has not answered.
    """
    for member in ring[1:]:
        if member not in standings:
            return member, "it does not answer"
    for left, member in pairwise(ring):
        if standings[member].received < standings[left].received:
            has = "has for it" if standings[left].waiting else "has sent to it"
            return member, f"it has not received what {left.node} {has}"
    mirrors = ring[1:]
    safe = [standings[member].safe for member in mirrors]
    if safe and min(safe) < max(*safe, standings[ring[0]].received if len(safe) == 1 else 0):
        return mirrors[safe.index(min(safe))], "its disk does not take what it has received"
    return None
