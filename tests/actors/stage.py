"""`Stage`: a few real processes among stubs.

The loop runs in the test's own thread, and only while the test waits. Between two waits nothing moves, so a test may
inspect every actor. `settle` waits until all messages are handled; timers that are not due yet do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren.actors.channel import Channel
from warren.actors.context.node_context import NodeContext
from warren.actors.contracts.channel import ChannelConfig
from warren.actors.node.first_user import first_user
from warren.actors.queue.process import Queue
from warren.amqp.constants import FRAME_METHOD
from warren.amqp.decoding import decode_method
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, content_body, content_properties, split_frames
from warren.amqp.method import Method
from warren.amqp.methods import BasicPublish, ChannelOpen
from warren.amqp.parser.events import ACKS, METHOD, RUN
from warren.amqp.parser.skimmer import fate
from warren.definitions.access import Access
from warren.definitions.definitions import Definitions
from warren.definitions.records import Permission
from warren.routing.rows import QueueRow
from warren.routing.table import RoutingTable
from warren.runtime.exit_reason import ExitKind, ExitReason
from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.process import Process
from warren.settings import Settings
from warren.store.messages.message import Origin

WAIT = 300.0
PROPS = b"\x00\x00"
PERSISTENT = b"\x10\x00\x02"

#: The exit reason of a process that the test has made crash.
CRASHED = ExitReason(ExitKind.CRASH, "provoked")

#: The exit reason of a queue that was deleted.
DELETED = ExitReason(ExitKind.ORDERLY, "deleted")


class Stub(Process):
    """Keeps every message in `received` and does nothing else. An ask is answered with `answers[name of the
    message]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.downs: list[tuple[Any, ExitReason]] = []

    def on_unknown(self, sender: Any, message: Any) -> Any:
        self.received.append(message)
        return self.answers.get(message[0])

    def on_down(self, name: Any, reason: ExitReason) -> None:
        self.downs.append((name, reason))

    def take(self, name: str) -> list[tuple[Any, ...]]:
        """Remove the messages of that name, and return the fields of each."""
        found = [message[1:] for message in self.received if message[0] == name]
        self.received = [message for message in self.received if message[0] != name]
        return found


class Stage:
    def __init__(self, **settings: Any) -> None:
        self.base = LoopBase(thread=False, shutdown_seconds=1.0)
        self.settings = Settings(**settings)
        self.routing = RoutingTable()
        self.routing.add_vhost("/")
        self.metadata, self.alarms = self.create(Stub), self.create(Stub)
        self.actor(self.metadata).answers = {"queue_gone": True, "delete_exclusive": True, "write": True}
        self.context = NodeContext("warren@test", self.settings, self.routing, self.metadata, self.alarms, self.alarms)
        self.context.definitions.put(first_user(self.settings, b"salt"))
        self.context.definitions.put(Permission("guest", "/", ".*", ".*", ".*"))

    def close(self) -> None:
        self.base.shutdown()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- actors --

    def create(self, actor_class: type[Process]) -> Any:
        return self.base.newPrimaryActor(actor_class)

    def actor(self, address: Any) -> Any:
        if address.actorAddressString in self.base.dormant.by_address:
            self.tell(self.metadata, address, "recovered")  # a message, so that the dormant supervisor gets its process
            self.settle()
        return self.base.cells[address.actorAddressString].actor

    def is_alive(self, address: Any) -> bool:
        return address.actorAddressString in self.base.cells

    def mailbox(self, address: Any) -> list[Any]:
        """The messages that wait in the mailbox of `address`."""
        cell = self.base.cells.get(address.actorAddressString)
        return [message for _, message in cell.queue] if cell is not None else []

    def tell(self, sender: Any, target: Any, *message: Any) -> None:
        self.base.enqueue(sender, target, message)

    def crash(self, address: Any) -> None:
        """Make a process crash by a message for which it has no handler."""
        self.tell(self.metadata, address, "no such message")

    def until(self, condition: Callable[[], Any]) -> None:
        assert self.base.run_until(lambda: bool(condition()), WAIT), "the condition did not become true in time"

    def settle(self) -> None:
        self.until(lambda: not self.base.lanes and not self.base.poller.poll(0))

    # -- queues and channels --

    def queue(self, name: str = "q", durable: bool = False, process: type[Process] = Queue, **arguments: Any) -> Queue_:
        address = self.create(process)
        known = self.routing.queue("/", name)
        queue_id = known.queue_id if known is not None else f"id of {name}"
        table = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
        row = QueueRow("/", name, address, queue_id, durable, arguments=table)
        self.routing.put_queue(row)
        self.tell(self.metadata, address, "start", self.context, row)
        self.settle()
        return Queue_(self, row)

    def channel(self, connection: type[Stub] = Stub, number: int = 1, cancel_notify: bool = True) -> Channel_:
        return Channel_(self, self.create(connection), number, cancel_notify)


class Queue_:
    """A queue under test, or a stub of one."""

    def __init__(self, stage: Stage, row: QueueRow) -> None:
        self.stage, self.row, self.address, self.id = stage, row, row.address, row.queue_id

    @property
    def actor(self) -> Any:
        return self.stage.actor(self.address)

    def publish(self, channel: Any, bodies: list[bytes], first_confirm: int = 0, persistent: bool = False) -> None:
        """Publish as a channel does. `channel` is a stub, and its address is its channel id.

        `first_confirm` is the publish number of the first body; 0: the channel awaits no confirms.
        """
        origin = Origin("", (self.row.name,), persistent)
        contents = [build_content(1, PERSISTENT if persistent else PROPS, body, 4096) for body in bodies]
        entry = origin, contents, sum(map(len, bodies)), first_confirm, first_confirm > 0, 0
        self.stage.tell(channel, self.address, "publish", channel.actorAddressString, [entry])

    def consume(
        self,
        channel: Any,
        tag: str = "c",
        no_ack: bool = False,
        prefetch: int = 0,
        is_limited: bool = False,
        priority: int = 0,
    ) -> None:
        fields = channel.actorAddressString, channel, tag, no_ack, False, prefetch, is_limited, priority
        self.stage.tell(channel, self.address, "consume", *fields, Table(), "guest")

    def tell(self, channel: Any, name: str, *fields: Any) -> None:
        """Send a message whose first field is the channel's id."""
        self.stage.tell(channel, self.address, name, channel.actorAddressString, *fields)


class Channel_:
    """A channel under test. A stub of its connection sends it the methods that the test gives."""

    def __init__(self, stage: Stage, connection: Any, number: int, cancel_notify: bool) -> None:
        self.stage, self.connection, self.number = stage, connection, number
        self.address = stage.create(Channel)
        self.id = self.address.actorAddressString
        config = ChannelConfig(
            self.id,
            "connection",
            "client -> broker",
            number,
            "/",
            "guest",
            131072,
            cancel_notify,
            Access(Definitions(), None, "/"),
        )
        stage.tell(connection, self.address, "start", stage.context, config)
        self.send(ChannelOpen())
        stage.settle()
        self.frames()

    @property
    def actor(self) -> Any:
        return self.stage.actor(self.address)

    def input(self, *events: tuple[Any, ...]) -> None:
        self.stage.tell(self.connection, self.address, "input", list(events))

    def send(self, *methods: Method) -> None:
        self.input(*[(METHOD, self.number, method) for method in methods])

    def publish(self, bodies: list[bytes], routing_key: str = "q", props: bytes = PROPS, **fields: Any) -> None:
        self.input(run(self.number, bodies, routing_key, props, **fields))

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.input((ACKS, self.number, [(tag, multiple)]))

    def frames(self) -> list[Any]:
        """The output since the last call: methods, and the bodies of contents."""
        connection = self.stage.actor(self.connection)
        # The message by which a channel reports its end has its last output.
        last_output = [pieces for _, _, pieces, _ in connection.take("channel_closed")]
        outputs = [pieces for pieces, _ in connection.take("output")] + last_output
        return decode_output(b"".join([piece for pieces in outputs for piece in pieces]))


def run(
    number: int, bodies: list[bytes], routing_key: str = "q", props: bytes = PROPS, **fields: Any
) -> tuple[Any, ...]:
    """The event by which the frame reader reports publishes with one method frame and equal properties."""
    payload = BasicPublish(routing_key=routing_key, **fields).encode()
    key, expiration = fate(props)
    return (
        RUN,
        number,
        payload,
        key,
        [build_content(number, props, body, 131072) for body in bodies],
        sum(map(len, bodies)),
        expiration,
    )


def bodies_of(contents: list[bytes]) -> list[bytes]:
    return [content_body(content) for content in contents]


def decode_output(data: bytes) -> list[Any]:
    """The frames in `data`: methods, and the bodies of contents. Empty bodies are left out."""
    frames, rest = split_frames(data)
    assert not rest
    return [decode_method(payload) if kind == FRAME_METHOD else payload for kind, _, payload in frames if kind != 2]


__all__ = ["Channel_", "Queue_", "Stage", "Stub", "bodies_of", "content_properties", "run", "decode_output"]
