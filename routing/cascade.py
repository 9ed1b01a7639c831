"""`Cascade`: which auto-delete exchanges go when some bindings go (AB-77), found out a few bindings at a time.

A client can bind any number of auto-delete exchanges to one another, and all of them go with the queue to which they
lead. Removing all these rows takes too long for one turn. So the handler that is about to remove the queue first
removes the bindings between these exchanges, **from the far end**: an exchange goes before those that it is bound to.
So a message is routed by all bindings of an exchange or is refused, except while an exchange with more bindings than
fit into one step goes. And if the node is killed meanwhile, no exchange without bindings is left behind, which nothing
would remove.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from .rows import Binding
from .vhost_rows import VhostRows


class Cascade:
    """What goes with the bindings `lost`, and with the exchange `but` if it is given, which is removed in any case.

    `on_found` is called with the name of each exchange as it is found.
    """

    __slots__ = ("bindings", "_but", "_is_over", "_left", "_lost", "_on_found", "_rows", "_waiting")

    def __init__(
        self,
        rows: VhostRows,
        lost: Iterable[Binding],
        but: str | None = None,
        on_found: Callable[[str], object] = lambda name: None,
    ) -> None:
        self._rows = rows
        self._but = but
        self._on_found = on_found
        #: The bindings to the exchanges that go. A binding comes after all bindings of its destination.
        self.bindings: list[Binding] = []
        #: Those of `lost` that are left, of which there may be a hundred thousand; then the bindings that go with them.
        self._lost = iter(lost)
        self._waiting: deque[Binding] = deque()
        self._is_over = False
        #: How many bindings each source would have left.
        self._left: dict[str, int] = {}

    def run(self, most: int) -> bool:
        """Look at `most` more bindings; return whether there are no others."""
        waiting = self._waiting
        for binding in islice(self._lost, most):
            self._lose(binding.source)
            most -= 1
        self._is_over = self._is_over or most > 0
        while waiting and most:
            self._lose(waiting.popleft().source)
            most -= 1
        return self._is_over and not waiting

    def _lose(self, name: str) -> None:
        left = self._left.get(name)
        left = self._left[name] = (self._rows.count_bindings(name) if left is None else left) - 1
        if left or name == self._but:
            return
        row = self._rows.exchanges.get(name)
        if row is not None and row.auto_delete:
            incoming = list(self._rows.bindings_of(("exchange", name)))
            self.bindings += incoming
            self._waiting += incoming
            self._on_found(name)

    def from_far_end(self, most: int) -> Iterator[tuple[Binding, ...]]:
        """The bindings in the order in which they are to be removed, `most` at a time."""
        bindings = reversed(self.bindings)
        return iter(lambda: tuple(islice(bindings, most)), ())
