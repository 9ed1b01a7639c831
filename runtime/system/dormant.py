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

if TYPE_CHECKING:
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
