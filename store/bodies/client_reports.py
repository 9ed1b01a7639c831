"""`ClientReports`: the clients of a message store, and the reports that each of them still has to get.

A write that asks for reports gets exactly one (QS-30): `written` when the message is on disk, `ignored` if it was
removed before. A message is written by the sync under way, or by a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class StoreReport(NamedTuple):
    """The answer to writes of a client; `kind` is "written" or "ignored"."""

    client: str
    kind: str
    ids: list[bytes]


@dataclass
class StoreClientState:
    """A queue that writes and removes messages."""

    is_notified: bool
    is_detached: bool = False


class ClientReports:
    """See the module."""

    def __init__(self) -> None:
        self.clients: dict[str, StoreClientState] = {}
        #: By client: the ids to report as written when the sync under way has ended (`now`), and those that wait for a
        #: later one (`next`).
        self.next: dict[str, dict[bytes, None]] = {}
        self.now: dict[str, dict[bytes, None]] = {}
        self._ready: dict[tuple[str, str], list[bytes]] = {}

    def forget(self, client: str) -> None:
        """Forget a client, which gets no more reports."""
        self.clients.pop(client, None)
        self.next.pop(client, None)
        self.now.pop(client, None)

    def report(self, client: str, kind: str, ids: Iterable[bytes]) -> None:
        """Report these messages to the client."""
        self._ready.setdefault((client, kind), []).extend(ids)

    def sync_taken(self, later: Collection[bytes]) -> None:
        """Note that a sync begins: the ids that waited for the next sync wait for the one under way, except `later`."""
        self.now, self.next = self.next, {}
        if not later:
            return
        for client, ids in self.now.items():
            staying = [message_id for message_id in ids if message_id in later]
            for message_id in staying:
                del ids[message_id]
            if staying:
                self.next[client] = dict.fromkeys(staying)

    def synced(self) -> None:
        """Note that the sync under way has ended: report its messages as written."""
        for client, ids in self.now.items():
            if ids:
                self.report(client, "written", ids)
        self.now = {}

    def take(self) -> list[StoreReport]:
        """The reports since the last call."""
        reports = [StoreReport(client, kind, ids) for (client, kind), ids in self._ready.items()]
        self._ready = {}
        return reports
