"""`ConnectionView`: what a connection's process shows of its bookkeeping, for checks and for operators.

A view reads the process when it is asked, so a process that nobody inspects pays nothing. It is used between two turns,
on the thread of the process.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...runtime.credit import CreditFlow
from .channels import ChannelEntry
from .process import Connection


@dataclass(slots=True)
class ConnectionView:
    """See the module."""

    connection: Connection

    @property
    def state(self) -> str:
        return self.connection.state

    @property
    def is_serving(self) -> bool:
        """Whether the client has opened the connection and neither side closes it."""
        return self.connection.state in ("running", "blocked")

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def credit(self) -> CreditFlow:
        """The connection's credit with its channels, by channel id."""
        return self.connection.credit

    def channels(self) -> Collection[ChannelEntry]:
        """Its channels, with the events that are gathered for each."""
        return self.connection.channels.by_number.values()

    def channel(self, number: int) -> ChannelEntry | None:
        """Its channel with this number."""
        return self.connection.channels.by_number.get(number)
