"""`SessionTracking`: reports to the other nodes of the cluster how many connections and channels this one has (AB-174).

Limits of virtual hosts and users count the connections and channels of all nodes. Each node counts its own and reports
the counts that have a limit to the nodes that are connected, whenever one has changed: all changes of a turn in one
message. `Sessions` keeps the counts of the others, and a login adds them to those of its own node. So a login asks
nobody and waits for nobody, whatever the other nodes do.

A limit is therefore as exact as the reports are recent. Clients that open connections on several nodes within the time
that a report takes can exceed it by their number. The counts that a node has reported are forgotten when the connection
to it ends.

A count without a limit is not reported, and a node without connected nodes reports nothing. When a limit is set, each
node reports its count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from thespian.actors import ActorAddress

from ...runtime.contract import Address, Sender
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.system.address import system_of
from ..context.sessions import CHANNELS, USER, VHOST, Counted
from ..context.starting import ToNewSessionTracking
from ..contracts.connection import to_session_tracking

if TYPE_CHECKING:
    from ...definitions.definitions import Definitions
    from ..context.node_context import NodeContext
    from ..contracts.connection import ToSessionTracking

#: Names of monitors: `(PEER, system)` for a node whose counts this process takes, and `(LISTENER, system)` for one
#: that gets the counts of this node.
PEER, LISTENER = "peer", "listener"


class SessionTracking(Process):
    """See the module. Other nodes are named by their systems of actors, so a node that starts again is another one."""

    contract = ToNewSessionTracking

    def on_start(self, sender: Sender, context: NodeContext) -> None:
        self.definitions = context.definitions
        self.sessions = context.sessions
        self.sessions.tracking = self.myAddress
        #: The nodes whose counts this process takes.
        self.peers: set[str] = set()
        #: The nodes that get the counts of this one.
        self.listeners: dict[str, Address[ToSessionTracking]] = {}

    # -- the counts of other nodes ---

    def on_node_met(self, sender: Sender, address: Address[ToSessionTracking]) -> None:
        system = system_of(cast(ActorAddress, address))
        if system not in self.peers:
            self.peers.add(system)
            self.monitor(address, (PEER, system))
        self.send(address, to_session_tracking.track_sessions(self.myAddress))

    def on_session_counts(self, sender: Address[ToSessionTracking], counts: tuple[tuple[str, str, int], ...]) -> None:
        system = system_of(cast(ActorAddress, sender))
        if system not in self.peers:
            return
        known = self.sessions.elsewhere.setdefault(system, {})
        for kind, name, count in counts:
            if count:
                known[kind, name] = count
            else:
                known.pop((kind, name), None)

    # -- the counts of this node ---

    def on_track_sessions(self, sender: Sender, address: Address[ToSessionTracking]) -> None:
        system = system_of(cast(ActorAddress, address))
        if not self.listeners:
            self.sessions.shared.update(_limited(self.definitions))
        if system not in self.listeners:
            self.monitor(address, (LISTENER, system))
        self.listeners[system] = address
        counts = self._counts(list(self.sessions.shared))
        self.send(address, to_session_tracking.session_counts(tuple(count for count in counts if count[2])))

    def on_counts_changed(self, sender: Sender) -> None:
        self._report(self.sessions.take_changed())

    def on_limits_changed(self, sender: Sender, counted: tuple[tuple[str, str], ...]) -> None:
        if not self.listeners:
            return
        shared = self.sessions.shared
        with_limit = {each for each in counted if _is_limited(self.definitions, each)}
        begun, ended = with_limit - shared, (set(counted) & shared) - with_limit
        shared |= begun
        shared -= ended
        self._report([*sorted(begun), *sorted(ended)])

    def _report(self, changed: list[Counted]) -> None:
        if changed:
            counts = self._counts(changed)
            for address in self.listeners.values():
                self.send(address, to_session_tracking.session_counts(counts))

    def _counts(self, wanted: list[Counted]) -> tuple[tuple[str, str, int], ...]:
        """The counts to report. A count that has lost its limit is reported as 0, because later changes of it are not
        reported.
        """
        shared = self.sessions.shared
        return tuple((*each, self.sessions.here(each) if each in shared else 0) for each in wanted)

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        kind, system = name
        if kind == PEER:
            self.peers.discard(system)
            self.sessions.elsewhere.pop(system, None)
        else:
            self.listeners.pop(system, None)
            if not self.listeners:
                self.sessions.shared.clear()
                self.sessions.take_changed()


def _is_limited(definitions: Definitions, counted: Counted) -> bool:
    kind, name = counted
    if kind == VHOST:
        return definitions.vhost_limit(name, "max-connections") is not None
    user = definitions.user(name)
    return user is not None and user.limit("max-connections" if kind == USER else "max-channels") is not None


def _limited(definitions: Definitions) -> Iterator[Counted]:
    """Everything that has a limit."""
    for vhost in definitions.vhosts_with_limits():
        if _is_limited(definitions, (VHOST, vhost)):
            yield VHOST, vhost
    for user in definitions.users.values():
        if user.limits:
            yield from (each for each in ((USER, user.name), (CHANNELS, user.name)) if _is_limited(definitions, each))
