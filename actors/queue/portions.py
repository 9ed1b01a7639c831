"""Cuts the ack tags of a settlement into portions that a turn may settle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...runtime.turn_work import TURN_MESSAGES

#: Messages in a row, which are settled and moved by slices of lists, cost a quarter of others at most.
IN_A_ROW = 4


def fits(pieces: Sequence[Sequence[int]], left: int) -> int:
    """The work of settling these ack tags; 0 if it is more than `left`."""
    work = 0
    for tags in pieces:
        work += 1 + len(tags) // IN_A_ROW if type(tags) is range and tags.step == 1 else len(tags)
        if work > left:
            return 0
    return work


def portions(pieces: list[Sequence[int]], each: bool = False) -> Iterator[list[Sequence[int]]]:
    """Take the ack tags out of `pieces`, in their order, in portions for one turn each.

    With `each`, messages in a row cost as much as others.
    """
    portion: list[Sequence[int]] = []
    left = TURN_MESSAGES
    pieces.reverse()
    while pieces:
        tags = pieces.pop()
        most = IN_A_ROW if type(tags) is range and tags.step == 1 and not each else 1
        taken, rest = tags[: left * most], tags[left * most :]
        portion.append(taken)
        left -= 1 + len(taken) // most
        if rest:
            pieces.append(rest)
        if left <= 0:
            yield portion
            portion, left = [], TURN_MESSAGES
    if portion:
        yield portion
