"""Access to the processes of a running broker, to inspect and crash them, on its own thread between two turns."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from warren import Broker
from warren.actors.channel import Channel
from warren.actors.channel.direct_client import DirectClient
from warren.actors.connection import Connection
from warren.actors.metadata.process import Metadata
from warren.actors.node.process import NodeSupervisor
from warren.actors.queue.process import Queue
from warren.runtime.process import Process

TIMEOUT = 60.0


class Anatomy:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.base = broker._node._base

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.base.call(function, *args)

    def eventually(self, condition: Callable[[], Any]) -> None:
        """Wait until `condition`, called on the broker's thread, is true."""
        deadline = time.monotonic() + TIMEOUT
        while not self.call(condition):
            assert time.monotonic() < deadline, f"not true within {TIMEOUT} s: {condition}"
            time.sleep(0.002)

    # -- processes ---

    def processes(self, kind: type[Process] = Process) -> list[Any]:
        cells = self.base.cells.values()
        return [cell.actor for cell in cells if isinstance(getattr(cell, "actor", None), kind)]

    def queue(self, name: str) -> Queue:
        return next(queue for queue in self.processes(Queue) if queue.row.name == name)

    def channel_with(self, consumer_tag: str) -> Channel:
        return next(channel for channel in self.processes(Channel) if consumer_tag in channel.consumers.by_tag)

    def connection_of(self, channel: Channel) -> Connection:
        return next(
            connection
            for connection in self.processes(Connection)
            if channel.config.channel_id in connection.channels.by_id
        )

    def node(self) -> NodeSupervisor:
        return self.processes(NodeSupervisor)[0]

    def direct(self) -> DirectClient:
        return self.processes(DirectClient)[0]

    def crash(self, find: Callable[[], Process]) -> None:
        """Send an unknown message to the process that `find` returns, which crashes it."""

        def strike() -> None:
            address = find().myAddress
            self.base.enqueue(address, address, ("no such message",))

        self.call(strike)

    def crash_at_publish(self, name: str) -> None:
        """Crash the queue's process when the next message is published to it."""

        def fail(*_: Any) -> None:
            raise RuntimeError("a crash for a test")

        def spoil() -> None:
            cell = self.base.cells[self.queue(name).myAddress.actorAddressString]
            cell.handlers = {**cell.handlers, "publish": fail}

        self.call(spoil)

    # -- counts ---

    def census(self) -> dict[str, Any]:
        """Counts of everything that a client could leave behind, at a moment at which no process waits for an answer.

        The broker measures its disk and its memory every few seconds. A measurement in progress is no leak; an ask that
        will never be answered is one, and fails here.
        """
        found: dict[str, Any] = {}

        def nothing_asked() -> bool:
            found.update(self._census())
            return not found["asks"]

        self.eventually(nothing_asked)
        found["descriptors"] = len(os.listdir("/proc/self/fd"))
        return found

    def _census(self) -> dict[str, Any]:
        base, processes = self.base, self.processes()
        routing = self.node().routing
        return {
            "processes": dict(Counter(type(process).__name__ for process in processes)),
            "living": base.living,
            "timers": len(base.timers),
            "watches": len(base.poller.owners),
            "watched": sum(len(process._monitored) for process in processes),
            "watchers": sum(len(process._host.monitors) for process in processes),
            "asks": sum(len(process._asks) + len(process._asked) + len(process._tasks) for process in processes),
            "messages": sum(len(process._host.queue) for process in processes),
            "queues": sorted(row.name for row in routing.queues("/")),
            "bindings": len(list(self.processes(Metadata)[0].state.vhosts["/"].all_bindings())),
            "reply channels": len(routing._reply_channels),
            "credit": sum(_entries(process.credit) for process in processes if hasattr(process, "credit")),
            "tables": {
                f"{type(process).__name__}.{name}": size
                for process in processes
                for name, size in _tables(process)
                if size
            },
        }


def _entries(credit: Any) -> int:
    blocks = credit._blocks
    return sum(
        len(table)
        for table in (
            credit._credit_from,
            credit._credit_to,
            {} if blocks is None else blocks.deferred,
            {} if blocks is None else blocks.last,
            credit._relations,
            credit.credit_blocked,
        )
    )


def _tables(process: Any) -> list[tuple[str, int]]:
    """The sizes of the dicts, lists and sets of a process. One that grows is a leak."""
    return [
        (name, len(value))
        for name, value in vars(process).items()
        if isinstance(value, (dict, list, set)) and not name.startswith("_")
    ]


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
