"""Which process wants to hear of which descriptor: epoll, level triggered.

Only explicit calls change what is watched. A descriptor has one owner; whoever watches it last owns it, so a
number that the kernel handed out again after an unnoticed close never reaches the old owner.
"""

from __future__ import annotations

import select
from typing import Any, Protocol

READ = select.EPOLLIN | select.EPOLLPRI
WRITE = select.EPOLLOUT
HANG_UP = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

# Ready descriptors taken per poll: enough to amortise the call, few enough that mailboxes get their turn, and that what a message touches on its way
# through connection, channel and queue is still in the processor's cache at the end of it: with 256 a thousand connections cost a third more a message.
MAX_EVENTS = 32


class Watches(Protocol):
    """Who watches what; how readiness is found out is the poller's own business."""

    owners: dict[int, tuple[Any, int]]

    def watch(self, owner: Any, fd: int, mask: int) -> None: ...
    def unwatch(self, owner: Any, fd: int) -> None: ...


class Poller:
    """`owners[fd] = (owner, mask)`; owners keep a set `fds` of what they watch."""

    __slots__ = ("_epoll", "owners")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.owners: dict[int, tuple[Any, int]] = {}

    def watch(self, owner: Any, fd: int, mask: int) -> None:
        """Report `fd` to `owner` when ready for `mask` (READ, WRITE or both; 0 stops watching).

        Raises OSError as epoll_ctl does: EBADF for a closed descriptor, EPERM for a regular file.
        """
        if not mask:
            self.unwatch(owner, fd)
            return
        known = self.owners.get(fd)
        if known is not None:
            if known == (owner, mask):
                return
            if known[0] is not owner:
                known[0].fds.discard(fd)
        try:
            if known is None:
                self._epoll.register(fd, mask)
            else:
                self._epoll.modify(fd, mask)
        except FileExistsError:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:
            # It was closed and its number reused since: the kernel forgot it, we had not.
            self._epoll.register(fd, mask)
        self.owners[fd] = (owner, mask)
        owner.fds.add(fd)

    def unwatch(self, owner: Any, fd: int) -> None:
        """Stop; nothing happens if `owner` does not watch `fd`."""
        known = self.owners.get(fd)
        if known is None or known[0] is not owner:
            return
        del self.owners[fd]
        owner.fds.discard(fd)
        self.forget(fd)

    def forget(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except OSError:
            pass  # closed already, which took it out of the set

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        """(fd, event mask) of what is ready; `timeout` seconds, None for no limit."""
        return self._epoll.poll(timeout, MAX_EVENTS)

    def close(self) -> None:
        self.owners.clear()
        self._epoll.close()
