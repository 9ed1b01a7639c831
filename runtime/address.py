"""Addresses of actors that live on an event loop.

An address prints, compares with `==` and pickles; like every Thespian address it does not hash, so
registries are keyed by name. `_cell` is the shortcut to the actor's mailbox. It exists only on the one
address object that the system itself made, and only while the actor lives: a copy (unpickled, say) and the
address of a dead actor lack it and take the slow road through the system's table of names.

What a sender needs of a `_cell`, should another room want addresses that lead elsewhere:

    ready   the run queue of its system (sending is direct only within one system)
    queue   anything with append((sender address, message))
    idle    True if the receiver must be put on the run queue when a message arrives; False for ever if not
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress

if TYPE_CHECKING:
    from .cell import Cell


class LoopAddress(ActorAddress):
    """The address `details`, a string unique for ever: `<system>/<class>-<number>`."""

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
