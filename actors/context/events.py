"""`Events`: how the processes of a node report what happens, such as a queue that was declared.

Each process reads the one `Events` of its context. While nobody watches, an event costs a test of `are_watched`, and
nobody builds its fields:

    if context.events.are_watched():
        context.events.emit(self, "channel.closed", {...})

The node has an `EventHub` only if its settings name a virtual host for events or for the log, or when the first command
watches the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..contracts.events import to_event_hub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...routing.table import RoutingTable
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ...settings import Settings
    from ..contracts.events import Fields, ToEventHub
    from ..metadata.state.commands import Command
    from ..metadata.state.effects import Change

#: The exchange from which consumers get events; their routing keys are the events' names.
EVENT_EXCHANGE = "amq.rabbitmq.event"

#: The exchange from which consumers get the lines of the log; their routing keys are the levels.
LOG_EXCHANGE = "amq.rabbitmq.log"

#: The user that events name for what operators do by command, and for what the broker does by itself, as in RabbitMQ.
OPERATOR, BROKER = "rmq-cli", "rmq-internal"


def watching_exchanges(settings: Settings) -> list[tuple[str, str]]:
    """Virtual host and name of each exchange to which the hub of a node with these settings publishes."""
    named = (settings.event_exchange_vhost, EVENT_EXCHANGE), (settings.log_exchange_vhost, LOG_EXCHANGE)
    return [(vhost, exchange) for vhost, exchange in named if vhost is not None]


class Events:
    """See the module."""

    __slots__ = ("_routing", "_vhost", "hub", "subscribers")

    def __init__(self) -> None:
        self.hub: Address[ToEventHub] | None = None
        #: How many commands watch events. The hub counts them.
        self.subscribers = 0
        self._routing: RoutingTable | None = None
        self._vhost: str | None = None

    def open(self, hub: Address[ToEventHub], routing: RoutingTable, vhost: str | None) -> None:
        """Emit to this hub. `vhost` is the virtual host of `amq.rabbitmq.event`; None: events are not published."""
        self.hub, self._routing, self._vhost = hub, routing, vhost

    def are_watched(self) -> bool:
        """Whether any consumer or command would get an event."""
        if self._routing is None:
            return False
        return self.subscribers > 0 or (
            self._vhost is not None and self._routing.is_topic_bound(self._vhost, EVENT_EXCHANGE)
        )

    def are_samples_wanted(self) -> bool:
        """Whether any pattern bound to the exchange begins with the word `flow`.

        A queue that is bound with `#`, such as an audit log, does not cause samples, of which there is one each second.
        """
        return (
            self._routing is not None
            and self._vhost is not None
            and self._routing.has_topic_patterns(self._vhost, EVENT_EXCHANGE, "flow")
        )

    def emit_sample(self, process: Process, body: bytes) -> None:
        """Publish a sample of flow control from `process`; `body` is JSON."""
        if self.hub is not None:
            process.send(self.hub, to_event_hub.flow_sample(body))

    def emit(self, process: Process, name: str, fields: Fields) -> None:
        """Report an event from `process`."""
        if self.hub is not None:
            process.send(self.hub, to_event_hub.event(name, fields))

    def emit_applied(self, process: Process, command: Command, changes: Sequence[Change]) -> None:
        """Report from `process`, the Metadata, what a command changed. The hub finds out which events that are."""
        if self.hub is not None and self.are_watched():
            process.send(self.hub, to_event_hub.applied(command, changes))

    def emit_vhost_down(self, process: Process, name: str) -> None:
        """Report from `process`, the Metadata, that a virtual host failed."""
        if self.hub is not None and self.are_watched():
            process.send(self.hub, to_event_hub.vhost_down(name))
