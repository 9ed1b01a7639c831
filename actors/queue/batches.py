"""How much work a settlement is, and its ack tags in batches that one turn may settle.

The unit of work is settling one message on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...store.queue.backing_queue import BackingQueue
from ...store.queue.levels.fair_queue import FairQueue

#: How many messages in a row cost as much as one message on its own, or less: they are settled and moved by slices of
#: lists.
IN_A_ROW = 4

#: The largest work of a rejection that is done at once, without batches. It is small because rejected messages may
#: become dead letters, and may be large.
REJECTED_AT_ONCE = 3


def fits(pieces: Sequence[Sequence[int]], left: int, backing: BackingQueue) -> int:
    """The work of settling these ack tags; 0 if it is more than `left`, the work that the present turn may still do."""
    work = 0
    has_lanes = settles_each(backing)
    for tags in pieces:
        work += 1 + len(tags) // IN_A_ROW if type(tags) is range and tags.step == 1 and not has_lanes else len(tags)
        if work > left:
            return 0
    return work


def settles_each(backing: BackingQueue) -> bool:
    """Whether messages in a row cost as much as others: those of fair lanes are looked up one by one."""
    return isinstance(backing, FairQueue)


def batches(pieces: list[Sequence[int]], most: Callable[[], int], each: bool = False) -> Iterator[list[Sequence[int]]]:
    """Take the ack tags out of `pieces`, in their order, in batches of the work `most`, which is asked for each batch.

    With `each`, messages in a row cost as much as others.
    """
    batch: list[Sequence[int]] = []
    left = most()
    pieces.reverse()
    while pieces:
        tags = pieces.pop()
        share = IN_A_ROW if type(tags) is range and tags.step == 1 and not each else 1
        taken, rest = tags[: left * share], tags[left * share :]
        batch.append(taken)
        left -= 1 + len(taken) // share
        if rest:
            pieces.append(rest)
        if left <= 0:
            yield batch
            batch, left = [], most()
    if batch:
        yield batch
