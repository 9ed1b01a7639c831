"""Addresses of actors that live on an event loop or in a simulation.

    <node>-<incarnation>/<class>-<number>

The part before the slash is the name of a system of actors, for example `a-2`: a node, and which of its runs. No two
actors ever have the same address. `remote_systems` has what becomes of a message to another system.

An address prints, compares with `==` and pickles. Like every Thespian address it does not hash, so registries are keyed
by name.

`_cell` is the short way to the actor's mailbox. It exists only on the address object that the system itself made, and
only while the actor lives. A message to a copy of an address (one that was unpickled, for example) or to the address of
an actor that has ended takes the longer way over the system's table of cells.

The sender of a message uses these attributes of a `_cell`, which the mailbox of an outside thread has as well:

    ready    the run queue of its system; a message goes into the mailbox directly only within one system
    queue    anything with `append((sender address, message))`
    is_idle  whether the receiver must be put on the run queue when a message arrives; always False for outside threads
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress

if TYPE_CHECKING:
    from .cell import Cell


def system_of(address: ActorAddress) -> str:
    """The name of the system that the actor at `address` belongs to."""
    return str(address.addressDetails).partition("/")[0]


def is_elsewhere(address: ActorAddress, here: ActorAddress) -> bool:
    """Whether the actor at `address` belongs to another system than the one at `here`."""
    return system_of(address) != system_of(here)


def node_of(system: str) -> str:
    """The node of which the system of that name is one run."""
    return system.rpartition("-")[0]


class LoopAddress(ActorAddress):
    """The address `details`, see the module."""

    __slots__ = ("_cell",)
    _cell: Cell

    def __init__(self, details: str) -> None:
        super().__init__(details)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ActorAddress) and self._aaddr == other.addressDetails)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (LoopAddress, (self._aaddr,))

    def __repr__(self) -> str:
        return f"<{self._aaddr}>"
