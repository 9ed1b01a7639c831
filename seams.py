"""Seams: the decisions that tests of random searches replace by wrong ones, to show that a search finds such a bug.

    @seam("where requeued messages go")
    def insert(self, returned: list[Run]) -> None: ...

The name of a seam describes what its function decides, so it stays true when the function is renamed, moved to another
class or file, or rewritten: only the decorator moves along. `seam` returns the function itself, so a broker pays for a
seam with one entry of a list, made at the import. Functions that make one decision together, such as two
implementations of one interface, share a name. `tests/planting.py` finds the functions here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

#: The functions that make each decision, by the decision's name.
SEAMS: dict[str, list[Callable[..., Any]]] = {}


def seam(decision: str) -> Callable[[F], F]:
    """Register the decorated function as one that makes this decision. For a property, put it below `@property`, so
    that it decorates the getter.
    """

    def register(function: F) -> F:
        SEAMS.setdefault(decision, []).append(function)
        return function

    return register
