"""Pollers: which owner is interested in which descriptor, and which descriptors are ready.

A poller is level triggered: `poll` reports a descriptor again and again for as long as it is ready. Only explicit
calls change what is watched. A descriptor has one owner, the one that watched it last. So when a descriptor was closed
without `unwatch` and the kernel has given its number to another one, the new owner gets the events and the old none.

`SystemPoller` is the one that a loop uses: `EpollPoller` on Linux, its portable twin `SelectorPoller` elsewhere.
"""

from __future__ import annotations

import select
import selectors
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Protocol

from ...portable import IS_PORTABLE
from ..machine.forks import keep_from_forks

#: Masks have the values of Linux's EPOLLIN | EPOLLPRI, EPOLLOUT and EPOLLERR | EPOLLHUP | EPOLLRDHUP, so that a mask
#: from epoll needs no translation.
READ = 0x001 | 0x002
WRITE = 0x004
HANG_UP = 0x008 | 0x010 | 0x2000

#: Most descriptors that one poll reports. This many amortise the system call. More would make the mailboxes wait, and
#: push what a message touches on its way through connection, channel and queue out of the processor's cache before the
#: end of that way: with 256 a message cost a third more when 1,000 connections were busy.
MAX_EVENTS = 32


class Watches(Protocol):
    """The part of a poller that `actor_base` uses; a simulation finds out about readiness in its own way."""

    #: By descriptor: the cell that watches it, which keeps its descriptors in its set `fds`, and the mask.
    owners: dict[int, tuple[Any, int]]

    def watch(self, owner: Any, fd: int, mask: int) -> None: ...
    def unwatch(self, owner: Any, fd: int) -> None: ...


class Poller:
    """The owners of descriptors. A subclass supplies the system call."""

    __slots__ = ("__weakref__", "owners")

    def __init__(self) -> None:
        self.owners: dict[int, tuple[Any, int]] = {}
        keep_from_forks(self)

    def descriptors(self) -> Iterable[int]:
        """All descriptors that are watched."""
        return self.owners

    def watch(self, owner: Any, fd: int, mask: int) -> None:
        """Report `fd` to `owner` when it is ready for `mask`: READ, WRITE or both; 0 stops watching.

        Raises OSError if the descriptor cannot be watched: EBADF if it is closed, EPERM if it is a regular file. The
        portable twin cannot detect either on every system.
        """
        if not mask:
            self.unwatch(owner, fd)
            return
        known = self.owners.get(fd)
        if known is not None:
            if known == (owner, mask):
                return
            if known[0] is not owner:
                known[0].fds -= {fd}
        self._register(fd, mask, known is not None)
        self.owners[fd] = (owner, mask)
        owner.fds |= {fd}

    def unwatch(self, owner: Any, fd: int) -> None:
        """Stop watching `fd`; nothing happens if `owner` does not watch it."""
        known = self.owners.get(fd)
        if known is None or known[0] is not owner:
            return
        del self.owners[fd]
        owner.fds -= {fd}
        self.forget(fd)

    def _register(self, fd: int, mask: int, is_known: bool) -> None:
        """Have the kernel watch `fd` for `mask`; `is_known` if it was registered before and not forgotten."""
        raise NotImplementedError

    def forget(self, fd: int) -> None:
        """Have the kernel stop watching `fd`, which may be closed already."""
        raise NotImplementedError

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for at most `timeout` seconds, or without limit if it is None, until a watched descriptor is ready.

        Returns (descriptor, mask of what it is ready for) of at most `MAX_EVENTS` of them.
        """
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class EpollPoller(Poller):
    """Linux's epoll, which takes the same time however many descriptors are watched."""

    __slots__ = ("_epoll",)

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()

    def _register(self, fd: int, mask: int, is_known: bool) -> None:
        try:
            if is_known:
                self._epoll.modify(fd, mask)
            else:
                self._epoll.register(fd, mask)
        except FileExistsError:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:
            # The descriptor was closed, which made the kernel forget it, and its number given out again.
            self._epoll.register(fd, mask)

    def forget(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except OSError:
            pass  # closed already, which made the kernel forget it

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._epoll.poll(timeout, MAX_EVENTS)

    def close(self) -> None:
        self.owners.clear()
        self._epoll.close()


class SelectorPoller(Poller):
    """kqueue where there is one (macOS, BSD), otherwise poll, otherwise select (Windows: at most 512 sockets)."""

    __slots__ = ("_last_fd", "_selector")

    def __init__(self) -> None:
        super().__init__()
        self._selector: selectors.BaseSelector = _selector_class()()
        self._last_fd = -1

    def _register(self, fd: int, mask: int, is_known: bool) -> None:
        # Register anew each time. A kernel that forgot a closed descriptor watches the next one of that number only
        # after another registration, which `modify` leaves out if the events are the same.
        self.forget(fd)
        reading = selectors.EVENT_READ if mask & READ else 0
        self._selector.register(fd, reading | (selectors.EVENT_WRITE if mask & WRITE else 0))

    def forget(self, fd: int) -> None:
        try:
            self._selector.unregister(fd)
        except (KeyError, OSError):
            pass  # not registered, or closed already

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        ready = [
            (key.fd, (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0))
            for key, events in self._selector.select(timeout)
        ]
        if len(ready) > MAX_EVENTS:
            # Begin after the last one reported, because the order is the same at each poll and the end would starve.
            ready.sort()
            start = bisect_right(ready, self._last_fd, key=lambda item: item[0])
            ready = (ready[start:] + ready[:start])[:MAX_EVENTS]
            self._last_fd = ready[-1][0]
        return ready

    def close(self) -> None:
        self.owners.clear()
        self._selector.close()


def _selector_class() -> type[selectors.BaseSelector]:
    for name in ("KqueueSelector", "PollSelector"):
        found: type[selectors.BaseSelector] | None = getattr(selectors, name, None)
        if found is not None:
            return found
    return selectors.SelectSelector


SystemPoller: type[Poller] = SelectorPoller if IS_PORTABLE else EpollPoller
