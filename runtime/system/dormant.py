"""Dormant processes: a process that has an address, and is created by the first message to it.

`Process.create_dormant` makes the address of a process and notes what the process begins with. The process itself, with
its mailbox and its state, is created by the first message to that address, so that a thousand dormant processes cost
what a thousand entries of a dict cost. The process handles the message that it was made with first, and then the
message that woke it.

The `LoopAddress` of a dormant process has no `_cell` yet, so that every sender takes the longer way over
`ActorBase.enqueue`, which finds the dormant process there. From then on the same address object leads to the mailbox
directly. So a message to a process that exists costs no more than without dormant processes.

When the parent ends, its dormant processes are dropped without being created.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from .instance import instance_of

if TYPE_CHECKING:
    from thespian.actors import ActorAddress

    from .actor_base import ActorBase
    from .address import LoopAddress
    from .cell import Cell


class Dormant(NamedTuple):
    """What is kept of a dormant process.

    first   the message that it handles before all others
    name    the name under which its parent monitors it once it exists
    """

    address: LoopAddress
    actor_class: type[Any]
    parent: Cell
    first: Any
    name: Hashable


class DormantProcesses:
    """The dormant processes of the system of actors `base`, by address."""

    def __init__(self, base: ActorBase) -> None:
        self._base = base
        self.by_address: dict[str, Dormant] = {}

    def create(self, actor_class: type[Any], parent: Cell, first: Any, name: Hashable) -> ActorAddress:
        """See `Process.create_dormant`."""
        address = self._base.new_address(actor_class.__name__)
        self.by_address[address._aaddr] = Dormant(address, actor_class, parent, first, name)
        if parent.dormant is None:
            parent.dormant = set()
        parent.dormant.add(address._aaddr)
        return address

    def woken(self, address: ActorAddress) -> Cell | None:
        """Create the dormant process at this address, if there is one, and return its cell."""
        dormant = self.by_address.get(getattr(address, "_aaddr", ""))
        return None if dormant is None else self.wake(dormant)

    def wake(self, dormant: Dormant) -> Cell:
        """Create a dormant process, with its first message in its mailbox, and return its cell."""
        base, parent, details = self._base, dormant.parent, dormant.address._aaddr
        del self.by_address[details]
        if parent.dormant is not None:
            parent.dormant.discard(details)
        actor = instance_of(dormant.actor_class, base.capabilities, None)
        cell = base.give_cell(dormant.address, actor, parent)
        cell.queue.append((parent.address, dormant.first))
        base.schedule(cell)
        parent.actor.monitor(dormant.address, dormant.name)
        return cell

    def drop_children_of(self, parent: Cell) -> None:
        """Forget the dormant children of a process that ends."""
        if parent.dormant is not None:
            for details in parent.dormant:
                del self.by_address[details]
            parent.dormant = None
