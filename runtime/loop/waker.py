"""Wakers: how another thread, or a signal handler, ends the sleep of a loop.

A loop sleeps in `poll`. A waker is a descriptor that the loop watches: `wake` makes it readable, `drain` makes it
unreadable again. `SystemWaker` is the one that a loop uses: `EventWaker` on Linux, its portable twin `SocketWaker`
elsewhere.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Protocol

from ...portable import IS_PORTABLE


class Waker(Protocol):
    """What `EventWaker` and `SocketWaker` have in common."""

    #: The descriptor to watch for reading.
    fd: int

    def wake(self) -> None:
        """Make `fd` readable; does nothing after `close`."""

    def drain(self) -> None:
        """Make `fd` unreadable, however often it was woken."""

    def close(self) -> None: ...


class EventWaker:
    """Linux's eventfd: one descriptor and a counter in the kernel."""

    __slots__ = ("_writing", "fd")

    def __init__(self) -> None:
        self.fd = self._writing = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # Each message that waits for a disk wakes the loop, and `suppress` would cost 1 µs each time.

    def wake(self) -> None:
        try:
            os.eventfd_write(self._writing, 1)
        except (OSError, ValueError):
            return

    def drain(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        # Hide the number from `wake` before closing: another thread may open a descriptor that gets the same number.
        self._writing = -1
        os.close(self.fd)


class SocketWaker:
    """A pair of connected sockets, the only thing that Windows can wait for together with other sockets."""

    __slots__ = ("_reading", "_writing", "fd")

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self.fd = self._reading.fileno()

    def wake(self) -> None:
        # A full buffer is an error as well, and means that the loop will wake up anyway.
        with suppress(OSError):
            self._writing.send(b"\0")

    def drain(self) -> None:
        with suppress(BlockingIOError):
            while self._reading.recv(4096):
                pass

    def close(self) -> None:
        self._writing.close()
        self._reading.close()


SystemWaker: type[Waker] = SocketWaker if IS_PORTABLE else EventWaker
