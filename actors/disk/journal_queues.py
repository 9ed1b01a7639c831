"""`JournalQueues`: the queues of a virtual host as its journal knows them.

A queue is *open* while its process appends records, *absent* while it has no process and the files may have records of
it, and *dormant* while it has neither. `existing` has all durable queues of the virtual host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...store.data_dir.vhost_dir import LEVEL_BITS

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..contracts.disk import ToDiskUser


class JournalQueues:
    """See the module. A queue is always named by its number."""

    def __init__(self) -> None:
        self.existing: set[int] = set()
        #: The processes of the open queues.
        self.addresses: dict[int, Address[ToDiskUser]] = {}
        #: The addresses at which a dead letter creates the processes of queues that were not needed since the start.
        self.dormant: dict[int, Address[ToDiskUser]] = {}
        self.absent: set[int] = set()

    def opened(self, queue: int, address: Address[ToDiskUser]) -> None:
        self.existing.add(queue)
        self.dormant.pop(queue, None)
        self.addresses[queue] = address
        self.absent.discard(queue)

    def sleeping(self, queues: Mapping[int, Address[ToDiskUser]]) -> None:
        """Note dormant queues, which have no records in the files."""
        self.absent.difference_update(queues)
        self.dormant.update(queues)

    def deleted(self, queue: int) -> None:
        self.existing.discard(queue)
        self.dormant.pop(queue, None)
        self.addresses.pop(queue, None)
        self.absent.discard(queue)

    def unflushed(self) -> set[int]:
        """The queues that may have records in the files and not in their segments."""
        return self.addresses.keys() | self.absent


def queue_of(level: int) -> int:
    """The number of the queue to which this priority level belongs."""
    return level >> LEVEL_BITS


def priority_of(level: int) -> int:
    """The priority of a priority level."""
    return level & (1 << LEVEL_BITS) - 1
