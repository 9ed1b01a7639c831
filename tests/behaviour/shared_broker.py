"""The embedded broker that the behaviour tests of one process share, and whether a test has broken it.

Other tests of the process open and close descriptors too. One that closes a number twice may close a descriptor of this
broker, and all later tests would find no broker to connect to.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from warren import Broker
from warren.actors.connection.listener import Listener
from warren.actors.node.process import NodeSupervisor
from warren.actors.resources.memory_monitor import MemoryMonitor
from warren.runtime.loop.poller import EpollPoller

#: Where Linux lists the descriptors of this process.
DESCRIPTORS = Path("/proc/self/fd")


class SharedBroker:
    """A broker that is started when the first test needs it."""

    def __init__(self) -> None:
        self._broker: Broker | None = None

    def running(self) -> Broker:
        if self._broker is None:
            self._broker = Broker(port=0).start()
        return self._broker

    def check(self) -> None:
        """Fail if the broker is broken, so that the next test gets another one."""
        if self._broker is not None and (fault := fault_of(self._broker)) is not None:
            self.stop()
            pytest.fail(f"the test has broken the broker that all share: {fault}")

    def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop()


def fault_of(broker: Broker) -> str | None:
    """What keeps the broker from accepting clients; None if it would accept one."""
    base = broker._node._base
    if base.is_closed():
        return "its loop has ended"
    return base.call(lambda: fault_within(broker))


def fault_within(broker: Broker) -> str | None:
    """As `fault_of`, on the broker's own thread."""
    base = broker._node._base
    actors = {type(cell.actor): cell.actor for cell in base.cells.values() if hasattr(cell, "actor")}
    if NodeSupervisor not in actors or Listener not in actors:
        return "its node has ended"
    listening, poller = actors[Listener].socket, base.poller
    if listening is None:
        return "it accepts no clients"
    if listening.fileno() not in poller.owners:
        return "it does not look at the socket on which it listens"
    try:
        accepts, port = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), listening.getsockname()[1]
    except OSError as error:
        return f"its descriptor {listening.fileno()}, on which it listened, is something else: {error}"
    if not accepts or port != broker.port:
        return f"its descriptor {listening.fileno()}, on which it listened, is another socket"
    if not isinstance(poller, EpollPoller):
        return None
    wanted = {
        poller._epoll.fileno(): "anon_inode:[eventpoll]",
        base.threads.waker.fd: "anon_inode:[eventfd]",
        actors[MemoryMonitor].memory._fd: f"/proc/{os.getpid()}/statm",
    }
    for fd, what in wanted.items():
        found = os.readlink(DESCRIPTORS / str(fd)) if (DESCRIPTORS / str(fd)).is_symlink() else "closed"
        if found != what:
            return f"its descriptor {fd} was {what} and is {found}"
    return None
