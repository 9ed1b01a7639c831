"""`Sessions`: the open connections of a node with their users, for limits and for closing all connections of a user.

A connection enters when its client opens a virtual host, and leaves when its process ends, whatever ended it. The check
of a limit and the entry are one step of one process, so two clients never share the last place. Channels are counted
only when a limit on them is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized

    from ...runtime.contract import Address
    from ..contracts.connection import ToConnection


@dataclass(slots=True, eq=False)
class ClientSession:
    """One open connection."""

    connection_id: str
    address: Address[ToConnection]
    user: str
    vhost: str
    #: Its open channels, by number. The connection itself adds and removes them.
    channels: Sized


class Sessions:
    """The sessions of one node, by connection id, by user and by virtual host."""

    __slots__ = ("_by_id", "_by_user", "_by_vhost")

    def __init__(self) -> None:
        self._by_id: dict[str, ClientSession] = {}
        self._by_user: dict[str, dict[str, ClientSession]] = {}
        self._by_vhost: dict[str, dict[str, ClientSession]] = {}

    def enter(self, session: ClientSession) -> None:
        self._by_id[session.connection_id] = session
        self._by_user.setdefault(session.user, {})[session.connection_id] = session
        self._by_vhost.setdefault(session.vhost, {})[session.connection_id] = session

    def leave(self, connection_id: str) -> None:
        """Forget a connection, if it has entered."""
        session = self._by_id.pop(connection_id, None)
        if session is not None:
            for index, key in ((self._by_user, session.user), (self._by_vhost, session.vhost)):
                del index[key][connection_id]
                if not index[key]:
                    del index[key]

    def of_user(self, user: str) -> Iterable[ClientSession]:
        return self._by_user.get(user, {}).values()

    def count(self) -> int:
        return len(self._by_id)

    def count_of_vhost(self, vhost: str) -> int:
        return len(self._by_vhost.get(vhost, ()))

    def count_of_user(self, user: str) -> int:
        return len(self._by_user.get(user, ()))

    def channels_of_user(self, user: str) -> int:
        return sum(len(session.channels) for session in self.of_user(user))
