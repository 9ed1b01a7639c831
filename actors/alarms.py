"""`Alarms`: which resources run low on this node, and which connections have to know (AB-33).

A memory or disk monitor sets and clears its source; every registered connection hears of each change, and of alarms that
are already on when it registers. What a connection does about it is its own business (AB-34 to AB-36).
"""

from __future__ import annotations

from typing import Any

from ..runtime.errors import ProcessError
from ..runtime.process import Process

SOURCES = ("memory", "disk")


class UnknownAlarm(ProcessError):
    """An alarm source that does not exist."""


class Alarms(Process):
    """
    ('set', source, on)         from a monitor or an operator; `source` is one of SOURCES
    ('register', address)       that connection gets ('alarms', sources), now if there are any, then at each change
    ('unregister', address)     not needed by a connection that ends
    ('active',)                 -> the active sources, a sorted tuple
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: frozenset[str] = frozenset()
        self.connections: dict[str, Any] = {}

    def on_set(self, sender: Any, source: str, on: bool) -> bool:
        if source not in SOURCES:
            raise UnknownAlarm(f"unknown alarm '{source}'; it is one of: {', '.join(SOURCES)}")
        before = self.sources
        self.sources = before | {source} if on else before - {source}
        if self.sources != before:
            for address in self.connections.values():
                self.send(address, self._message())
        return True

    def on_register(self, sender: Any, address: Any) -> None:
        name = address.actorAddressString
        self.connections[name] = address
        self.monitor(address, name)
        if self.sources:
            self.send(address, self._message())

    def on_unregister(self, sender: Any, address: Any) -> None:
        name = address.actorAddressString
        self.connections.pop(name, None)
        self.demonitor(name)

    def on_active(self, sender: Any) -> tuple[str, ...]:
        return tuple(sorted(self.sources))

    def on_down(self, name: Any, reason: str) -> None:
        self.connections.pop(name, None)

    def _message(self) -> tuple[str, tuple[str, ...]]:
        return "alarms", tuple(sorted(self.sources))
