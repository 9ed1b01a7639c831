"""Who published the messages of a run: its **parts**.

A channel numbers its publishes from 1, those that it awaits no confirm for as well. The channel's id and this publish
number are the identity of a publish. It is the same in every replica of a queue, whereas a queue process learns the
number that a message has in its own queue only when its backing queue takes the message.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Messages in a row from one channel: the channel's id, the publish number of the first message, how many messages
#: there are, and whether the channel awaits a confirm for them.
Part = tuple[str, int, int, bool]


def part_of_nobody(count: int) -> Part:
    """The part of dead letters and traced messages, which no channel numbers."""
    return ("", 0, count, False)


def split_parts(parts: Sequence[Part], count: int) -> tuple[list[Part], list[Part]]:
    """The parts of the first `count` messages, and those of the rest."""
    head: list[Part] = []
    for at, part in enumerate(parts):
        if not count:
            return head, list(parts[at:])
        channel_id, first, size, awaits_confirm = part
        if size > count:
            head.append((channel_id, first, count, awaits_confirm))
            rest = (channel_id, first + count, size - count, awaits_confirm)
            return head, [rest, *parts[at + 1 :]]
        head.append(part)
        count -= size
    return head, []
