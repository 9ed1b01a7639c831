"""`Remembering`: begins, resizes and ends what a replica of a queue remembers for deduplication (SP-30, SP-31).

A queue remembers publishes while its settings have a window. The settings are its arguments, its policies and the
exchanges that lead to it, so that this may begin and end while the queue runs. Who decides depends on the role of the
replica:

- A queue that is not mirrored, and the master of one that is, follow the settings. The master sends its mirrors an
  instruction about each change, between the messages.
- Mirrors and learners follow these instructions, because a policy or a binding reaches the nodes at different times. A
  learner also gets the width of the window with its copy of it.

A window begins empty. A window that becomes wider or narrower keeps what it can. When it ends, its memory is freed in
steps, and its files are deleted in another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....store.deduplication.window import Window
from ..master.came_through import CameThrough
from ..master.deduplication import Deduplication

if TYPE_CHECKING:
    from ....routing.arguments.queue_settings import QueueSettings
    from ..disk.durability import Durability
    from ..mirroring import Replica
    from .membership import Membership


def remembered(messages: int | None, durability: Durability | None) -> Deduplication | None:
    """The deduplication of a queue that opens and remembers the last `messages` messages; None if it does not
    deduplicate.

    That of a durable queue begins with what the queue's last process remembered, from `durability`.
    """
    if messages is None:
        return None
    if durability is None or durability.digest_log is None:
        return Deduplication(Window(messages), None)
    return Deduplication(durability.window, durability.digest_log)


class Remembering:
    """Belongs to the replica `replica`, which is open, and has this `membership` and this disk."""

    __slots__ = ("_durability", "_membership", "_replica")

    def __init__(self, replica: Replica, membership: Membership, durability: Durability | None) -> None:
        self._replica = replica
        self._membership = membership
        self._durability = durability

    def apply(self, settings: QueueSettings) -> None:
        """Use the window of these settings, unless another replica decides."""
        if self._membership.serves:
            self.resize(settings.window or 0)
            state = self._replica.state
            if state.deduplication is not None:
                is_for_all = settings.deduplicate is not None
                state.deduplication.came_through = None if is_for_all else CameThrough(state.routing, state.row)

    def resize(self, size: int) -> None:
        """Remember the last `size` messages from now on; 0: none."""
        replica = self._replica
        deduplication = replica.state.deduplication
        if size == (0 if deduplication is None else deduplication.window.size):
            return
        if deduplication is None:
            deduplication = self._begin(size)
        elif size:
            deduplication.resize(size)
            replica.spawn(self._free(deduplication.window, is_in_use=True))
        else:
            self._end(deduplication)
        if self._membership.replication is not None:
            self._membership.replication.remembers(deduplication, size)

    def _begin(self, size: int) -> Deduplication:
        replica, state = self._replica, self._replica.state
        log = None if self._durability is None else self._durability.begin_digests(size)
        deduplication = state.confirms.deduplication
        if deduplication is None:
            deduplication = Deduplication(Window(size), log)
        else:
            # Some of its duplicates still await their confirms.
            deduplication.restart(Window(size), log)
        state.deduplication = state.confirms.deduplication = deduplication
        replica.role.deduplicate(deduplication)
        return deduplication

    def _end(self, deduplication: Deduplication) -> None:
        replica = self._replica
        replica.state.deduplication = None
        replica.role.deduplicate(None)
        self.dispose(deduplication.end())
        if self._durability is not None:
            self._durability.end_digests()

    async def delete(self) -> None:
        """Free the memory, because the queue ends."""
        deduplication = self._replica.state.deduplication
        if deduplication is not None:
            await self._free(deduplication.window, is_in_use=False)

    def dispose(self, window: Window) -> None:
        """Free a window that is not used any more, in steps."""
        self._replica.spawn(self._free(window, is_in_use=False))

    async def _free(self, window: Window, is_in_use: bool) -> None:
        while window.free() if is_in_use else window.dispose():
            await self._replica.next_turn()
