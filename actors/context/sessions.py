"""`Sessions`: the open connections of a node with their users, for limits and for closing all connections of a user.

A connection enters when its client opens a virtual host, and leaves when its process ends, whatever ended it. The check
of a limit and the entry are one step of one process, so two clients of one node never share the last place. The
channels of each user are counted as they are opened and closed, because a user may have thousands of connections.

In a cluster the limits count the connections and channels of all nodes (AB-174). `SessionTracking` keeps here what the
other nodes have reported, so a check waits for no other node. It sends them the counts of this node that have a limit
(`shared`), and the connections notify it whenever one of these has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...definitions.limits import VHOST_LIMITS
from ...definitions.records import Parameter, Record, User
from ..contracts.connection import to_session_tracking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ..contracts.connection import ToConnection, ToSessionTracking

#: What a limit counts: the connections to a virtual host, those of a user, or the channels of a user, with its name.
Counted = tuple[str, str]

VHOST, USER, CHANNELS = "vhost", "user", "channels"


def limited_by(record: Record) -> tuple[Counted, ...]:
    """The counts that this record may limit."""
    if isinstance(record, User):
        return (USER, record.name), (CHANNELS, record.name)
    if isinstance(record, Parameter) and record.key[1:] == VHOST_LIMITS:
        return ((VHOST, record.vhost),)
    return ()


@dataclass(slots=True, eq=False)
class ClientSession:
    """One open connection."""

    connection_id: str
    address: Address[ToConnection]
    user: str
    vhost: str
    #: How many channels it has open.
    channels: int = 0


class Sessions:
    """The sessions of one node, by connection id, by user and by virtual host, and the counts of other nodes."""

    __slots__ = (
        "_by_id",
        "_by_user",
        "_by_vhost",
        "_changed",
        "_channels",
        "_is_notified",
        "elsewhere",
        "shared",
        "tracking",
    )

    def __init__(self) -> None:
        self._by_id: dict[str, ClientSession] = {}
        self._by_user: dict[str, dict[str, ClientSession]] = {}
        self._by_vhost: dict[str, dict[str, ClientSession]] = {}
        #: The open channels of each user that has any.
        self._channels: dict[str, int] = {}
        #: The counts of each connected node that are not 0, by the name of its system of actors.
        self.elsewhere: dict[str, dict[Counted, int]] = {}
        #: The counts that have a limit and are reported to other nodes; empty while no other node is connected.
        self.shared: set[Counted] = set()
        #: Those of `shared` that have changed since they were reported, and whether `tracking` is notified of that.
        self._changed: dict[Counted, None] = {}
        self._is_notified = False
        #: The process that reports counts to other nodes; None on a node without one.
        self.tracking: Address[ToSessionTracking] | None = None

    def enter(self, session: ClientSession, process: Process) -> None:
        """Note a new connection, whose process is `process`."""
        self._by_id[session.connection_id] = session
        self._by_user.setdefault(session.user, {})[session.connection_id] = session
        self._by_vhost.setdefault(session.vhost, {})[session.connection_id] = session
        self._counts_changed(session, process)

    def leave(self, connection_id: str, process: Process) -> None:
        """Forget a connection, if it has entered."""
        session = self._by_id.pop(connection_id, None)
        if session is not None:
            for index, key in ((self._by_user, session.user), (self._by_vhost, session.vhost)):
                del index[key][connection_id]
                if not index[key]:
                    del index[key]
            self._count_channels(session, -session.channels)
            self._counts_changed(session, process)

    def _counts_changed(self, session: ClientSession, process: Process) -> None:
        if self.shared:
            for counted in ((VHOST, session.vhost), (USER, session.user), (CHANNELS, session.user)):
                self._note(counted, process)

    def channels_changed(self, connection_id: str, change: int, process: Process) -> None:
        """Note that a connection, whose process is `process`, has opened a channel (1) or closed one (-1)."""
        session = self._by_id.get(connection_id)
        if session is not None:
            self._count_channels(session, change)
            if self.shared:
                self._note((CHANNELS, session.user), process)

    def _count_channels(self, session: ClientSession, change: int) -> None:
        session.channels += change
        count = self._channels.pop(session.user, 0) + change
        if count:
            self._channels[session.user] = count

    def _note(self, counted: Counted, process: Process) -> None:
        if counted in self.shared:
            self._changed[counted] = None
            if not self._is_notified and self.tracking is not None:
                self._is_notified = True
                process.send(self.tracking, to_session_tracking.counts_changed())

    def take_changed(self) -> list[Counted]:
        """The counts in `shared` that have changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        self._is_notified = False
        return changed

    def of_user(self, user: str) -> Iterable[ClientSession]:
        return self._by_user.get(user, {}).values()

    def count(self) -> int:
        """The open connections of this node."""
        return len(self._by_id)

    # -- what limits count: this node and all that are connected to it ---

    def count_of_vhost(self, vhost: str) -> int:
        return self._everywhere((VHOST, vhost))

    def count_of_user(self, user: str) -> int:
        return self._everywhere((USER, user))

    def channels_of_user(self, user: str) -> int:
        return self._everywhere((CHANNELS, user))

    def _everywhere(self, counted: Counted) -> int:
        return self.here(counted) + sum([counts.get(counted, 0) for counts in self.elsewhere.values()])

    def here(self, counted: Counted) -> int:
        """The count of this node."""
        kind, name = counted
        if kind == VHOST:
            return len(self._by_vhost.get(name, ()))
        if kind == USER:
            return len(self._by_user.get(name, ()))
        return self._channels.get(name, 0)
