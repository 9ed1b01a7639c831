"""`Alarms`: keeps which resources run low on this node, and notifies every connection of changes (AB-33).

A memory or disk monitor raises and clears its source, and so may an operator. Every registered process is notified of
each change, and of alarms that are active already when it registers. A source is active while at least one origin has
raised it: a monitor does not clear the alarm that an operator raised, nor the other way round. Each
connection decides what an alarm changes for it (AB-34 to AB-36).

An alarm of one node blocks publishers on all nodes of its cluster (CL-57): a publisher of any node may fill the queues
of that one. So the `Alarms` of each node registers with those of the others, and connections are notified of the alarms
of all nodes. The alarms of another node are forgotten when the connection to it ends.
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import cast

from thespian.actors import ActorAddress

from ...runtime.contract import Address, Contract, Sender
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.system.address import system_of
from ..contracts.resources import ToAlarmListener, ToAlarms, to_alarm_listener, to_alarms

log = logging.getLogger("warren.alarms")

SOURCES = ("memory", "disk")

#: The name of a monitor is `(LISTENER, address)` for a registered process, `(PEER, node)` for the `Alarms` of another
#: node, and `(source, origin)` for a process whose end clears an alarm.
LISTENER, PEER = "listener", "peer"


class UnknownAlarm(ProcessError):
    """An alarm source that does not exist."""


class Alarms(Process):
    """See the module."""

    contract = ToAlarms

    def __init__(self) -> None:
        super().__init__()
        #: The alarms of this node: pairs of source and origin.
        self.raised: frozenset[tuple[str, str]] = frozenset()
        #: The processes that are notified of the alarms of this node, and of those of all nodes.
        self.listeners: dict[str, Address[ToAlarmListener]] = {}
        self.connections: dict[str, Address[ToAlarmListener]] = {}
        #: The other nodes that are connected, by the name of their systems, and the alarms of each.
        self.nodes: dict[str, str] = {}
        self.elsewhere: dict[str, tuple[str, ...]] = {}

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
        before, before_everywhere = self._active(), self._everywhere()
        self.raised = self.raised | {(source, origin)} if on else self.raised - {(source, origin)}
        active = self._active()
        if active != before:
            for address in self.listeners.values():
                self.send(address, to_alarm_listener.alarms(active))
        self._notify_connections(before_everywhere)

    def _notify_connections(self, before: tuple[str, ...]) -> None:
        """Notify connections if other alarms than `before` are active on any node."""
        active = self._everywhere()
        if active != before:
            for address in self.connections.values():
                self.send(address, to_alarm_listener.alarms(active))

    def on_active(self, sender: Sender) -> tuple[str, ...]:
        return self._active()

    def on_register(self, sender: Sender, address: Address[ToAlarmListener], is_connection: bool = False) -> None:
        name = address.actorAddressString
        (self.connections if is_connection else self.listeners)[name] = address
        self.monitor(address, (LISTENER, name))
        active = self._everywhere() if is_connection else self._active()
        if active:
            self.send(address, to_alarm_listener.alarms(active))

    # -- other nodes ---

    def on_node_met(self, sender: Sender, node: str, address: Address[ToAlarms]) -> None:
        # This process may learn that the node has started again before it learns that the run before has ended.
        self._forget_node(node)
        self.nodes[system_of(cast(ActorAddress, address))] = node
        self.monitor(address, (PEER, node))
        self.send(address, to_alarms.register(self.myAddress))

    def on_alarms(self, sender: Address[ToAlarms], sources: tuple[str, ...]) -> None:
        node = self.nodes.get(system_of(cast(ActorAddress, sender)))
        if node is not None:
            self._set_elsewhere(node, sources)

    def _set_elsewhere(self, node: str, sources: tuple[str, ...]) -> None:
        before, known = self._everywhere(), self.elsewhere.get(node, ())
        if sources != known:
            log.warning("publishers are %s", _change(node, sources))
        self.elsewhere[node] = sources
        self._notify_connections(before)

    def _forget_node(self, node: str) -> None:
        """Forget the alarms of a node; it sends those that are active when this process registers with it."""
        self.nodes = {system: other for system, other in self.nodes.items() if other != node}
        self._set_elsewhere(node, ())

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        kind, ended = name
        if kind == LISTENER:
            self.listeners.pop(ended, None)
            self.connections.pop(ended, None)
        elif kind == PEER:
            self._forget_node(ended)
        else:
            self._set(kind, False, ended)

    def _active(self) -> tuple[str, ...]:
        return tuple(sorted({source for source, _ in self.raised}))

    def _everywhere(self) -> tuple[str, ...]:
        """The alarms that are active on any node."""
        return tuple(sorted({*self._active(), *chain.from_iterable(self.elsewhere.values())}))


def _change(node: str, sources: tuple[str, ...]) -> str:
    if not sources:
        return f"no longer blocked by {node}"
    return f"blocked, because {node} runs low on {' and '.join(sources)}"
