"""`Alarms`: keeps which resources run low on this node, and notifies every connection of changes (AB-33).

A memory or disk monitor raises and clears its source, and so may an operator. Every registered process is notified of
each change, and of alarms that are active already when it registers. A source is active while at least one origin has
raised it: a monitor does not clear the alarm that an operator raised, nor the other way round. Each
connection decides what an alarm changes for it (AB-34 to AB-36).
"""

from __future__ import annotations

from ...runtime.contract import Address, Contract, Sender
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from .contract import ToAlarmListener, ToAlarms, to_alarm_listener

SOURCES = ("memory", "disk")

#: The name of a monitor is `(LISTENER, address)` for a registered process, and `(source, origin)` for a process whose
#: end clears an alarm.
LISTENER = "listener"


class UnknownAlarm(ProcessError):
    """An alarm source that does not exist."""


class Alarms(Process):
    """See the module."""

    contract = ToAlarms

    def __init__(self) -> None:
        super().__init__()
        #: Pairs of source and origin.
        self.raised: frozenset[tuple[str, str]] = frozenset()
        self.listeners: dict[str, Address[ToAlarmListener]] = {}

    def on_set(
        self,
        sender: Sender,
        source: str,
        on: bool,
        origin: str = "operator",
        address: Address[Contract] | None = None,
    ) -> bool:
        if source not in SOURCES:
            raise UnknownAlarm(f"unknown alarm '{source}'; it is one of: {', '.join(SOURCES)}")
        if address is not None and on:
            self.monitor(address, (source, origin))
        elif address is not None:
            self.demonitor((source, origin))
        self._set(source, on, origin)
        return True

    def _set(self, source: str, on: bool, origin: str) -> None:
        before = self._active()
        self.raised = self.raised | {(source, origin)} if on else self.raised - {(source, origin)}
        active = self._active()
        if active != before:
            for address in self.listeners.values():
                self.send(address, to_alarm_listener.alarms(active))

    def on_active(self, sender: Sender) -> tuple[str, ...]:
        return self._active()

    def on_register(self, sender: Sender, address: Address[ToAlarmListener]) -> None:
        name = address.actorAddressString
        self.listeners[name] = address
        self.monitor(address, (LISTENER, name))
        if self.raised:
            self.send(address, to_alarm_listener.alarms(self._active()))

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        kind, ended = name
        if kind == LISTENER:
            self.listeners.pop(ended, None)
        else:
            self._set(kind, False, ended)

    def _active(self) -> tuple[str, ...]:
        return tuple(sorted({source for source, _ in self.raised}))
