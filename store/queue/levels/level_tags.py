"""The numbers and tags of a queue that has levels, which are queues of their own inside (queue-and-store section 9).

A level has a number from 0 to 255 and numbers its messages by itself. Outside, numbers and tags are
`(level << 56) | number in the level`; those of level 0 are the plain numbers of the level.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...messages.message import QueuedMessage

LEVEL_SHIFT = 56
NUMBER_MASK = (1 << LEVEL_SHIFT) - 1

#: Levels that a queue can have at most.
MOST_LEVELS = 256


def outer(number: int, numbers: range) -> range:
    base = number << LEVEL_SHIFT
    return range(base + numbers.start, base + numbers.stop, numbers.step)


def outer_tags(number: int, tags: Sequence[int]) -> Sequence[int]:
    if isinstance(tags, range):
        return outer(number, tags)
    base = number << LEVEL_SHIFT
    return [base + tag for tag in tags] if base else tags


def outer_messages(number: int, messages: list[QueuedMessage]) -> list[QueuedMessage]:
    base = number << LEVEL_SHIFT
    return [message._replace(tag=base + message.tag) for message in messages] if base else messages


def within(span: range, number: int) -> range:
    """The part of an ascending range that lies in a level, without the level's bits."""
    base = number << LEVEL_SHIFT
    low = max(span.start, base)
    low += (span.start - low) % span.step
    return range(low - base, min(span.stop, base + NUMBER_MASK + 1) - base, span.step)
