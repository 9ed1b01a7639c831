"""Spans: sets of message numbers as ranges, so that an acknowledgement of many messages costs little."""

from __future__ import annotations

from collections.abc import Sequence


def spans(tags: Sequence[int]) -> list[range]:
    """Tags in any order as ascending ranges of positive step, none empty; duplicates in a list collapse."""
    if not tags:
        return []
    if isinstance(tags, range):
        return [tags if tags.step > 0 else tags[::-1]]
    if len(tags) == 1:
        return [range(tags[0], tags[0] + 1)]
    step = tags[1] - tags[0]
    if step > 0:
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
