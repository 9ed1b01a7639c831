"""Queue and Channel work on Thespian's own system bases, where each is an operating-system process.

The test's `Office` is their parent, and stands for the connection and Metadata. All that they are started with
(context, routing table, settings) and every message must be picklable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from thespian.actors import ActorSystem

from warren.actors.channel import Channel
from warren.actors.context.node_context import NodeContext
from warren.actors.contracts.channel import ChannelConfig
from warren.actors.queue.process import Queue
from warren.amqp.decoding import decode_method
from warren.amqp.errors import AmqpError
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content, split_frames
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.parser.events import ACKS, METHOD, RUN
from warren.definitions.access import Access
from warren.definitions.definitions import Definitions
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.exit_reason import NORMAL, ExitReason
from warren.runtime.process import Process
from warren.settings import Settings

WAIT = 300
PERSISTENT = b"\x10\x00\x02"


class Office(Process):
    """Stands for the connection, Metadata and the parent.

    Answers `until` when the client would have received the number of method frames that it was asked for.
    """

    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.received = b""
        self.messages: list[tuple[Any, ...]] = []
        self.wanted = 0
        self.asker: Any = None

    async def on_begin(self, sender: Any) -> bool:
        routing = RoutingTable()
        routing.add_vhost("/")
        self.context = NodeContext("warren@test", Settings(), routing, self.myAddress, self.myAddress, self.myAddress)
        self.queue = self.createActor(Queue)
        self.row = QueueRow("/", "q", self.queue, "id of q", arguments=table_from({"x-max-length": 1000}))
        routing.put_queue(self.row)
        # A message that contains the address of a process waits until that process has started, and later messages to
        # other processes overtake it.
        await self.ask(self.queue, ("start", self.context, self.row), WAIT)
        self.channel = self.createActor(Channel)
        config = ChannelConfig(
            "c1", "connection", "client -> broker", 1, "/", "guest", 131072, True, Access(Definitions(), None, "/")
        )
        self.send(self.channel, ("start", self.context, config))
        self.monitor(self.channel, "channel")
        return True

    def on_say(self, sender: Any, events: list[tuple[Any, ...]]) -> None:
        self.send(self.channel, ("input", events))

    def on_output(self, sender: Any, pieces: list[bytes], notices: list[tuple[Any, ...]]) -> None:
        self.received += b"".join(pieces)
        for address, _, channel_id, count, _ in notices:
            self.send(address, ("sent", channel_id, count))
        self.look()

    def on_channel_closed(
        self, sender: Any, channel_id: str, crossed: bool, pieces: list[bytes], notices: list[tuple[Any, ...]]
    ) -> None:
        self.messages.append(("channel_closed", channel_id, crossed))
        self.on_output(sender, pieces, notices)

    def on_declare_queue(self, sender: Any, *fields: Any) -> tuple[QueueRow, bool]:
        return replace(self.row), False

    def on_await_restart(self, sender: Any, *fields: Any) -> None:
        raise AmqpError(404, "it stays down")

    def on_unknown(self, sender: Any, message: Any) -> None:
        self.messages.append(message[:1] + message[2:] if message[0] == "bump" else message)

    def on_down(self, name: str, reason: ExitReason) -> None:
        self.messages.append(("down", name, reason))
        self.look()

    def on_until(self, sender: Any, wanted: int) -> None:
        self.asker, self.wanted = sender, wanted
        self.look()

    def look(self) -> None:
        frames, _ = split_frames(self.received)
        ended = any(message[0] == "down" for message in self.messages)
        if self.asker is not None and (ended or sum(kind == 1 for kind, _, _ in frames) >= self.wanted):
            self.reply(self.asker, (frames, self.messages))
            self.asker = None

    async def on_queue_info(self, sender: Any) -> dict[str, Any]:
        return await self.ask(self.queue, ("info",), WAIT)

    def on_crash_queue(self, sender: Any) -> None:
        self.send(self.queue, ("no such message",))


def ask(system: ActorSystem, address: Any, *message: Any) -> Any:
    answer = system.ask(address, ("ask", 1, message), WAIT)
    assert answer is not None and answer[2] is True, answer
    return answer[3]


@pytest.fixture(params=["simpleSystemBase", "multiprocTCPBase"])
def system(request, running_stock_system):
    with running_stock_system(request.param) as system:
        yield system


def say(*methods: Any) -> list[tuple[Any, ...]]:
    return [(METHOD, 1, method) for method in methods]


def test_publish_deliver_ack_confirm(system):
    """A client publishes, consumes, acknowledges and gets confirms, and an orderly close leaves the queue empty
    (AB-111, AB-119, AB-129, AB-53).
    """
    office = system.createActor(Office)
    ask(system, office, "begin")
    system.tell(
        office,
        (
            "say",
            say(
                ChannelOpen(),
                ConfirmSelect(),
                QueueDeclare(queue="q"),
                BasicQos(0, 10, False),
                BasicConsume(queue="q", consumer_tag="t"),
            ),
        ),
    )
    frames, _ = ask(system, office, "until", 5)
    assert [type(decode_method(payload)) for _, _, payload in frames] == [
        ChannelOpenOk,
        ConfirmSelectOk,
        QueueDeclareOk,
        BasicQosOk,
        BasicConsumeOk,
    ]

    bodies = [b"message %d" % number for number in range(400)]
    contents = [build_content(1, PERSISTENT, body, 131072) for body in bodies]
    publish = BasicPublish(routing_key="q").encode()
    system.tell(office, ("say", [(RUN, 1, publish, PERSISTENT, contents, sum(map(len, bodies)), None)]))
    frames, _ = ask(system, office, "until", 5 + 10 + 1)
    acked = 0
    while acked < 400:
        methods = [decode_method(payload) for kind, _, payload in frames if kind == 1]
        acked = max(method.delivery_tag for method in methods if isinstance(method, BasicDeliver))
        system.tell(office, ("say", [(ACKS, 1, [(acked, True)])]))
        frames, messages = ask(system, office, "until", min(len(methods) + 10, 5 + 400 + 1))
    methods = [decode_method(payload) for kind, _, payload in frames if kind == 1]
    assert [payload for kind, _, payload in frames if kind == 3] == bodies
    assert [method.delivery_tag for method in methods if isinstance(method, BasicDeliver)] == list(range(1, 401))
    assert max(method.delivery_tag for method in methods if isinstance(method, BasicAck)) == 400
    assert sum(message[1] for message in messages if message[0] == "bump") == 400

    system.tell(office, ("say", say(ChannelClose(200, "", 0, 0))))
    frames, _ = ask(system, office, "until", len(methods) + 1)
    assert isinstance(decode_method(frames[-1][2]), ChannelCloseOk)
    _, messages = ask(system, office, "until", 1 << 30)
    assert ("down", "channel", NORMAL) in messages
    info = ask(system, office, "queue_info")
    assert (info["messages"], info["consumers"]) == (0, 0)


def test_the_crash_of_a_queue_reaches_its_consumers(system):
    """The crash of a queue reaches its consumers by monitors, because no parent notifies them (AB-126, FC-57)."""
    office = system.createActor(Office)
    ask(system, office, "begin")
    system.tell(office, ("say", say(ChannelOpen(), BasicConsume(queue="q", consumer_tag="t"))))
    ask(system, office, "until", 2)
    system.tell(office, ("crash_queue",))
    frames, _ = ask(system, office, "until", 3)
    assert decode_method(frames[-1][2]) == BasicCancel("t", True)
