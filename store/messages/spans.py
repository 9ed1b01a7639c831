"""Spans: sets of message numbers as ranges, so that an acknowledgement of many messages costs little."""

from __future__ import annotations

from collections.abc import Sequence

#: No range of several numbers has a greater step. Round robin over k consumers makes steps of k. Two messages that are
#: farther apart, such as one that a consumer has held for days and the latest one, have nothing in common: a range of
#: both would have whoever uses it look at everything in between, and its step may exceed the u32 of a journal record.
MOST_STEP = 1 << 16


def spans(tags: Sequence[int]) -> list[range]:
    """Tags in any order as ascending ranges of positive step, none empty; duplicates in a list collapse."""
    if not tags:
        return []
    if isinstance(tags, range):
        return [tags if tags.step > 0 else tags[::-1]]
    if len(tags) == 1:
        return [range(tags[0], tags[0] + 1)]
    step = tags[1] - tags[0]
    if 0 < step <= MOST_STEP:
        guess = range(tags[0], tags[-1] + 1, step)
        if len(guess) == len(tags) and list(guess) == tags:
            return [guess]
    return consecutive(sorted(set(tags)))


def consecutive(ordered: Sequence[int]) -> list[range]:
    """Ascending numbers as ranges of step 1."""
    if not ordered:
        return []
    found = []
    first = previous = ordered[0]
    for tag in ordered[1:]:
        if tag != previous + 1:
            found.append(range(first, previous + 1))
            first = tag
        previous = tag
    found.append(range(first, previous + 1))
    return found
