"""`Alarms`: which resources run low on this node, and which connections have to know (AB-33).

A memory or disk monitor sets and clears its source, and so may a person; every registered connection hears of each change, and of
alarms that are already on when it registers. A source is active while any origin says so: the monitor does not clear what a person has
set, nor the other way round. What a connection does about it is its own business (AB-34 to AB-36).
"""

from __future__ import annotations

from typing import Any

from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process

SOURCES = ("memory", "disk")


class UnknownAlarm(ProcessError):
    """An alarm source that does not exist."""


class Alarms(Process):
    """
    ('set', source, on, origin, address)  `source` is one of SOURCES; `origin` names who says so, 'operator' if left out. With an `address` it is cleared when that process
                                ends: whoever comes after it will say so if it is still true
    ('register', address)       that connection gets ('alarms', sources), now if there are any, then at each change
    ('unregister', address)     not needed by a connection that ends
    ('active',)                 -> the active sources, a sorted tuple
    """

    def __init__(self) -> None:
        super().__init__()
        self.raised: frozenset[tuple[str, str]] = frozenset()  # (source, origin)
        self.connections: dict[str, Any] = {}

    def on_set(self, sender: Any, source: str, on: bool, origin: str = "operator", address: Any = None) -> bool:
        if source not in SOURCES:
            raise UnknownAlarm(f"unknown alarm '{source}'; it is one of: {', '.join(SOURCES)}")
        before = self._active()
        if address is not None and on:
            self.monitor(address, (source, origin))
        elif address is not None:
            self.demonitor((source, origin))
        self.raised = self.raised | {(source, origin)} if on else self.raised - {(source, origin)}
        if self._active() != before:
            for address in self.connections.values():
                self.send(address, self._message())
        return True

    def on_register(self, sender: Any, address: Any) -> None:
        name = address.actorAddressString
        self.connections[name] = address
        self.monitor(address, name)
        if self.raised:
            self.send(address, self._message())

    def on_unregister(self, sender: Any, address: Any) -> None:
        name = address.actorAddressString
        self.connections.pop(name, None)
        self.demonitor(name)

    def on_active(self, sender: Any) -> tuple[str, ...]:
        return self._active()

    def on_down(self, name: Any, reason: ExitReason) -> None:
        if type(name) is tuple:
            source, origin = name
            self.on_set(None, source, False, origin)
        else:
            self.connections.pop(name, None)

    def _active(self) -> tuple[str, ...]:
        return tuple(sorted({source for source, _ in self.raised}))

    def _message(self) -> tuple[str, tuple[str, ...]]:
        return "alarms", self._active()
