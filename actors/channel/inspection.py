"""`ChannelView`: what a channel's process shows of its bookkeeping, for checks and for operators.

A view reads the process when it is asked, so a process that nobody inspects pays nothing. It is used between two turns,
on the thread of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...amqp.parser.events import OVERSIZED, RUN, Event
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from .process import CONNECTION, Channel

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..contracts.channel import ToChannelOwner

#: The name under which a channel has credit with its connection.
CONNECTION_PEER = CONNECTION


@dataclass(slots=True)
class ChannelView:
    """See the module. Only `state`, `is_started` and `is_running` may be read before the channel has started."""

    channel: Channel

    @property
    def state(self) -> str:
        return getattr(self.channel, "state", "new")

    @property
    def is_started(self) -> bool:
        """Whether the owner's `start` was handled."""
        return hasattr(self.channel, "config")

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def name(self) -> str:
        return self.channel.name

    @property
    def channel_id(self) -> str:
        return self.channel.config.channel_id

    @property
    def number(self) -> int:
        return self.channel.config.number

    @property
    def owner(self) -> Address[ToChannelOwner]:
        return self.channel.connection

    @property
    def credit(self) -> CreditFlow:
        """The channel's credit with its peers: queues by id, and the connection as `CONNECTION_PEER`."""
        return self.channel.credit

    @property
    def queues(self) -> Mapping[str, QueueRow]:
        """The queues that the channel uses, by id."""
        return self.channel.queues.rows

    @property
    def waiting_publishes(self) -> int:
        """Publishes that the channel has received and not yet routed."""
        channel = self.channel
        return channel.taken + (publishes_in(channel.backlog) if channel.backlog else 0)

    @property
    def is_committing(self) -> bool:
        """Whether a commit is under way, which sends all its publishes at once, whatever the credit is."""
        transaction = self.channel.transaction
        return transaction.is_committing or transaction.is_sending

    def settleable(self) -> dict[str, set[int]]:
        """The ack tags of the deliveries that the client may settle, by queue id."""
        unacked = self.channel.deliveries.unacked
        held_back = [run for _, runs in unacked.held_back or () for run in runs]
        tags: dict[str, set[int]] = {}
        for run in (*unacked, *held_back):
            tags.setdefault(run.source.queue_id, set()).update(run.tags)
        return tags


def publishes_in(events: Iterable[Event]) -> int:
    """How many publishes these events are."""
    return sum(len(event[4]) if event[0] == RUN else event[0] == OVERSIZED for event in events)
