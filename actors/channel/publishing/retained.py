"""`RetainedPublishes`: the publishes of one channel that mirrored queues have not answered yet (CL-96).

If the master of a queue is lost, the next master may lack some of them. Then the channel publishes them again, and the
client receives one confirm for each.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ....seams import seam
from ....store.messages.message import body_size, slice_of
from ...context.retained_bytes import RetainedBytes
from .range_set import Range, RangeSet

if TYPE_CHECKING:
    from ...contracts.queue import PublishEntry

#: How many bytes all channels of a node together retain at most.
NODE_BYTES = 256 << 20

#: Bytes that a message takes beside its body.
MESSAGE_BYTES = 128


class RetainedPublishes:
    """See the module. A channel retains at most `limit` bytes, and all channels of its node at most `NODE_BYTES`
    together. A channel that exceeds one of these drops its oldest publishes.
    """

    __slots__ = ("_bytes", "_by_queue", "_entries", "_limit", "_of_node")

    def __init__(self, limit: int, of_node: RetainedBytes) -> None:
        self._limit = limit
        self._of_node = of_node
        self._bytes = 0
        #: By queue and first number, the oldest first.
        self._entries: OrderedDict[tuple[str, int], PublishEntry] = OrderedDict()
        #: By queue: the first numbers of its entries, ascending.
        self._by_queue: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, queue_id: str, entry: PublishEntry) -> None:
        """Retain an entry that the channel is about to send the queue, and for which it awaits confirms."""
        self._entries[queue_id, entry[3]] = entry
        firsts = self._by_queue.get(queue_id)
        if firsts is None:
            firsts = self._by_queue[queue_id] = deque()
        firsts.append(entry[3])
        self._count(entry, 1)
        while self._entries and (self._bytes > self._limit or self._of_node.count > NODE_BYTES):
            (oldest, _), dropped = self._entries.popitem(last=False)
            self._by_queue[oldest].popleft()
            self._count(dropped, -1)
            if not self._by_queue[oldest]:
                del self._by_queue[oldest]

    def answered(self, queue_id: str, floor: int) -> None:
        """Forget the publishes below the number `floor`, for which the queue owes no answer."""
        firsts = self._by_queue.get(queue_id)
        while firsts:
            entry = self._entries[queue_id, firsts[0]]
            if entry[3] + len(entry[1]) > floor:
                return
            del self._entries[queue_id, firsts.popleft()]
            self._count(entry, -1)
        self._by_queue.pop(queue_id, None)

    @seam("cluster: what is published again")
    def of(self, queue_id: str, wanted: RangeSet) -> Iterator[PublishEntry]:
        """The retained publishes to the queue with these numbers, in order. They are kept until they are answered."""
        for number in self._by_queue.get(queue_id, ()):
            entry = self._entries[queue_id, number]
            for first, last in wanted.within(number, number + len(entry[1]) - 1):
                yield _part(entry, first, last)

    def forget_all(self) -> None:
        """Forget everything, because the channel has ended."""
        self._of_node.count -= self._bytes
        self._bytes = 0
        self._entries.clear()
        self._by_queue.clear()

    def _count(self, entry: PublishEntry, sign: int) -> None:
        size = sign * (entry[2] + MESSAGE_BYTES * len(entry[1]))
        self._bytes += size
        self._of_node.count += size


def _part(entry: PublishEntry, first: int, last: int) -> PublishEntry:
    """The publishes of an entry from `first` to `last`. The queue that receives them now stores their bodies anew."""
    origins, contents, _, number, is_awaited, _ = entry
    piece = slice(first - number, last + 1 - number)
    part = contents[piece]
    return slice_of(origins, piece), part, sum(map(body_size, part)), first, is_awaited, 0


def numbers_of(entries: Iterable[PublishEntry]) -> list[Range]:
    """The publish numbers of entries."""
    return [(entry[3], entry[3] + len(entry[1]) - 1) for entry in entries]
