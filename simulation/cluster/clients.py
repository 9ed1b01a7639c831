"""`ClusterClient`: a simulated client of a cluster. It has one connection at a time, to one node, and reports to the
ledger what it sends and receives.

It does its actions in order on each channel. A channel that the broker has closed is opened again at the next action,
and so is a connection, then to the next node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.method import Method
from ...amqp.properties import Properties
from ...runtime.sim.client import SimStream
from ..clients.peer import Peer, SimContent
from ..model.copies import PromiseBroken
from ..node import PORT
from ..plan import Action
from .channels import (
    ClientChannel,
    ConsumingChannel,
    DeclaringChannel,
    PublishingChannel,
    ReadingChannel,
    TransactingChannel,
)
from .nodes import node_name
from .plan import CONSUMING, DECLARING, PUBLISHING, READING, TRANSACTING
from .published import LedgerCopy

if TYPE_CHECKING:
    from .schedule import ClusterSchedule

#: The class of each of a client's channels, by the number of the channel.
_KINDS = {
    PUBLISHING: PublishingChannel,
    CONSUMING: ConsumingChannel,
    DECLARING: DeclaringChannel,
    READING: ReadingChannel,
    TRANSACTING: TransactingChannel,
}


class _Connection(Peer):
    def __init__(self, client: ClusterClient) -> None:
        super().__init__()
        self._client = client
        self.is_open = False

    def on_open(self) -> None:
        self.is_open = True
        if self._client.connection is self:
            self._client.on_open()

    def on_method(self, channel: int, method: Method, content: SimContent | None) -> None:
        if self._client.connection is self:
            self._client.on_method(channel, method, content)

    def on_lost(self, stream: SimStream, reason: str) -> None:
        if self._client.connection is self:
            self._client.on_lost(reason)


class ClusterClient:
    """See the module. `letter` is the machine to which it connects first."""

    def __init__(self, schedule: ClusterSchedule, name: str, letter: str) -> None:
        self.schedule = schedule
        self.name = name
        self.letter = letter
        self.connection: _Connection | None = None
        self.channels: dict[int, ClientChannel] = {}
        #: Whether it waits for the answer to its connection.close.
        self.is_closing = False
        #: The last queue that it has declared; empty if it has none. Nobody else uses that name, nor does this client
        #: after a declare or a delete that was not answered, since that may take effect at any time.
        self.declared = ""
        #: The last queue whose delete was answered, until it is declared again.
        self.deleted = ""
        self._names = 0
        self._todo: list[Action] = []

    def next_name(self) -> str:
        """The name of a queue that does not exist for certain: one that was deleted, or a new one."""
        name, self.deleted = self.deleted, ""
        if not name:
            self._names += 1
            name = f"{self.name}.{self._names}"
        return name

    @property
    def node(self) -> str:
        """The node to which it is connected, or will be."""
        return node_name(self.letter)

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.schedule.tell(self.name, text)

    def waits_for(self) -> str:
        """What has not arrived, as a text; empty if nothing is missing."""
        if self.connection is None:
            return ""
        if self.is_closing or not self.connection.is_open:
            return f"{self.name} waits for its connection to {self.node} to {'close' if self.is_closing else 'open'}"
        return "; ".join(filter(None, (channel.waits_for() for channel in self.channels.values())))

    # -- the actions of the plan ---

    def do(self, action: Action) -> None:
        """Do the action, or keep it until the connection or the channel is ready for it."""
        if action.what == "close":
            self._close()
        elif action.what in ("reset", "move"):
            self._drop(action.what)
        elif not self.is_closing:
            if self.connection is None:
                self._connect()
            if self.connection is not None and self.connection.is_open:
                self._do_on_channel(action)
            else:
                self._todo.append(action)

    def _connect(self) -> None:
        connection = self.connection = _Connection(self)
        connection.stream = self.schedule.world.connect(self.node, PORT, connection)

    def _do_on_channel(self, action: Action) -> None:
        channel = self.channels.get(action.channel)
        if channel is None:
            channel = self.channels[action.channel] = _KINDS[action.channel](self, action.channel)
        channel.do(action)

    def _close(self) -> None:
        connection = self.connection
        if connection is None or self.is_closing:
            return
        if not connection.is_open:
            self._drop("hang up")
            return
        self.tell("closes its connection")
        self.is_closing = True
        connection.send(0, methods.ConnectionClose(200, "done"))

    def _drop(self, how: str) -> None:
        connection = self.connection
        if connection is not None:
            self.tell("resets its connection" if how == "reset" else "hangs up")
            self._ended()
            (connection.stream.reset if how == "reset" else connection.stream.close)()
        if how == "move":
            self._go_on()

    def _go_on(self) -> None:
        """Use the next node from now on."""
        letters = self.schedule.plan.letters
        self.letter = letters[(letters.index(self.letter) + 1) % len(letters)]

    # -- for the auditor ---

    def settle_all(self) -> list[LedgerCopy]:
        """Acknowledge everything that it holds, and return it."""
        channel = self.channels.get(CONSUMING)
        return channel.settle_all() if isinstance(channel, ConsumingChannel) else []

    def found_messages(self) -> list[LedgerCopy]:
        """What it has found when it last read a queue by number."""
        channel = self.channels.get(READING)
        return channel.found_messages if isinstance(channel, ReadingChannel) else []

    def consumes_from(self, queue: str) -> bool:
        """Whether it has a consumer of this queue that was not cancelled."""
        channel = self.channels.get(CONSUMING)
        return isinstance(channel, ConsumingChannel) and channel.consumes_from(queue)

    def has_found(self, messages: int) -> bool:
        """Whether the queue that its consuming channel has looked for has this many messages, and no other consumer."""
        channel = self.channels.get(CONSUMING)
        return channel is not None and channel.found == (messages, 1)

    # -- the broker ---

    def send(
        self, channel: int, method: Method, body: bytes | None = None, properties: Properties | None = None
    ) -> None:
        if self.connection is not None:
            self.connection.send(channel, method, body, properties)

    def on_open(self) -> None:
        """The connection is open."""
        todo, self._todo = self._todo, []
        for action in todo:
            self._do_on_channel(action)

    def on_method(self, number: int, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ConnectionClose):
            self.tell(f"is disconnected by {self.node}: {method.reply_code} {method.reply_text}")
            self.schedule.must_be_disturbed(f"{self.name} was disconnected: {method.reply_text}")
            self.send(0, methods.ConnectionCloseOk())
            self._ended()
            self._go_on()
        elif isinstance(method, methods.ConnectionCloseOk):
            self.tell("has closed its connection")
            self._ended()
        elif number in self.channels:
            self.channels[number].on_method(method, content)
        elif number:
            raise PromiseBroken(f"{self.name} received {type(method).__name__} on channel {number}, which is not open")

    def on_lost(self, reason: str) -> None:
        """The connection was refused, closed or reset by the node."""
        self.tell(f"is refused by {self.node}" if reason == "refused" else f"loses its connection to {self.node}")
        if not self.is_closing:
            self.schedule.must_be_disturbed(f"{self.name} lost its connection: {reason}")
        self._ended()
        self._go_on()

    def on_power_cut(self) -> None:
        """The machine of its node has lost power. A real client would notice much later; here it does so at once."""
        if self.connection is not None:
            self.connection.stream.reset()
            self.on_lost("reset")

    def _ended(self) -> None:
        self.connection = None
        self.is_closing = False
        self._todo.clear()
        for channel in self.channels.values():
            channel.ended()
        self.channels.clear()
