"""The whole chain of flow control on a stage: a client on a socket pair, a real connection with its channels, and
queues.

`Books` checks the credit between them.
"""

from __future__ import annotations

import socket
from typing import Any

from warren.actors.channel import Channel
from warren.actors.connection import Connection
from warren.actors.queue.process import Queue
from warren.amqp import methods
from warren.amqp.constants import FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content, method_frame, split_frames
from warren.amqp.parser.events import RUN
from warren.runtime.process import Process

from .stage import PROPS, Stage, Stub

PLAIN = b"\0guest\0guest"


class Client:
    """An AMQP client that never waits: `go` moves bytes and runs the stage until nothing is left to do."""

    def __init__(self, stage: Stage, reads: bool = True) -> None:
        self.stage, self.reads = stage, reads
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        self.unsent, self._rest = b"", b""
        self.received: list[Any] = []
        self.address = stage.create(Connection)
        stage.tell(
            stage.metadata, self.address, "start", stage.context, theirs.detach(), ("127.0.0.1", 1), ("127.0.0.1", 2)
        )
        capabilities = table_from({"capabilities": {"connection.blocked": True, "consumer_cancel_notify": True}})
        self.unsent += PROTOCOL_HEADER
        self.send(
            0,
            methods.ConnectionStartOk(capabilities, "PLAIN", PLAIN, "en_US"),
            methods.ConnectionTuneOk(0x7FF, 131072, 0),
        )
        self.send(0, methods.ConnectionOpen("/"))
        self.go()
        assert self.actor.state == "running"

    @property
    def actor(self) -> Any:
        return self.stage.actor(self.address)

    def send(self, channel: int, *what: methods.Method) -> None:
        self.unsent += b"".join(method_frame(channel, method) for method in what)

    def publish(self, channel: int, bodies: list[bytes], routing_key: str = "q") -> None:
        head = method_frame(channel, methods.BasicPublish(routing_key=routing_key))
        self.unsent += b"".join(head + build_content(channel, PROPS, body, 131072) for body in bodies)

    def pump(self, most: int = 1 << 20) -> bool:
        """Write at most `most` bytes to the socket and read what it has; return whether anything moved."""
        moved = False
        try:
            count = self.sock.send(self.unsent[:most]) if self.unsent else 0
            self.unsent, moved = self.unsent[count:], count > 0
        except BlockingIOError:
            pass
        if self.reads:
            try:
                data = self.sock.recv(1 << 20)
            except BlockingIOError:
                return moved
            frames, self._rest = split_frames(self._rest + data)
            self.received += [
                decode_method(payload) if kind == FRAME_METHOD else payload for kind, _, payload in frames if kind != 2
            ]
            return bool(data) or moved
        return moved

    def go(self) -> None:
        self.stage.settle()
        while self.pump():
            self.stage.settle()

    def take(self, kind: type) -> list[Any]:
        found = [item for item in self.received if isinstance(item, kind)]
        self.received = [item for item in self.received if not isinstance(item, kind)]
        return found

    def hang_up(self) -> None:
        self.sock.close()


class FrozenChannel(Stub):
    """Stands for a channel that takes what its connection sends and never grants credit."""

    def on_start(self, sender: Any, context: Any, config: Any) -> None:
        self.connection, self.channel_id = sender, config.channel_id
        self.contents: list[bytes] = []

    def on_input(self, sender: Any, events: list[tuple[Any, ...]]) -> None:
        for event in events:
            if event[0] == RUN:
                self.contents += event[4]

    def on_grant(self, sender: Any, amount: int) -> None:
        self.send(self.connection, ("bump", self.channel_id, amount))


class Valve(Process):
    """Stands for a queue: keeps publishes in order, and grants credit only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[bytes] = []
        self.owed: dict[str, tuple[Any, int]] = {}
        self.is_open = False

    def on_start(self, sender: Any, context: Any, row: Any) -> None:
        self.queue_id = row.queue_id

    def on_publish(self, sender: Any, channel_id: str, entries: list[tuple[Any, ...]], *rest: Any) -> None:
        for entry in entries:
            self.contents += entry[1]
            self.owed[channel_id] = sender, self.owed.get(channel_id, (sender, 0))[1] + len(entry[1])
        if self.is_open:
            self.on_open(sender)

    def on_open(self, sender: Any) -> None:
        self.is_open = True
        for address, count in self.owed.values():
            self.send(address, ("bump", self.queue_id, count))
        self.owed = {}

    def on_channel_closing(self, sender: Any, channel_id: str) -> bool:
        return True


class Eater(Stub):
    """A consumer that reads, counts, and acknowledges at once."""

    def __init__(self) -> None:
        super().__init__()
        self.eaten: list[bytes] = []

    def on_deliver(self, sender: Any, queue_id: str, tag: str, runs: list[tuple[Any, ...]]) -> None:
        me = self.myAddress.actorAddressString
        for _, _, tags, contents in runs:
            self.eaten += contents
            self.send(sender, ("settle", me, "ack", [tags]))
            self.send(sender, ("sent", me, len(contents)))


class Books:
    """Checks FC-12 and the bounds of FC-59 for every live pair of processes, after every turn of every actor."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.turns = 0
        self.most: dict[str, int] = {"channel": 0, "queue": 0}
        turn = stage.base.turn

        def watched(cell: Any) -> None:
            turn(cell)
            self.turns += 1
            self.check()

        stage.base.turn = watched  # type: ignore[method-assign]

    def check(self) -> None:
        actors = [
            (cell.address, cell.actor)
            for cell in self.stage.base.cells.values()
            if isinstance(getattr(cell, "actor", None), Process)
        ]
        channels = {
            actor.config.channel_id: (address, actor)
            for address, actor in actors
            if isinstance(actor, Channel) and hasattr(actor, "config")
        }
        for address, connection in actors:
            if isinstance(connection, Connection) and hasattr(connection, "credit"):
                for entry in connection.channels.by_number.values():
                    if entry.channel_id in channels and channels[entry.channel_id][1].state in ("starting", "running"):
                        self.reader_to_channel(address, connection, entry, *channels[entry.channel_id])
        for address, channel in channels.values():
            for row in channel.queues.rows.values() if channel.state == "running" else ():
                if self.stage.is_alive(row.address) and isinstance(self.stage.actor(row.address), Queue):
                    self.channel_to_queue(address, channel, row)

    def reader_to_channel(self, address: Any, connection: Any, entry: Any, channel_address: Any, channel: Any) -> None:
        waiting = [event for message in self.mailbox(channel_address, "input") for event in message[1]]
        unread = sum(len(event[4]) for event in (*waiting, *channel.backlog, *entry.events) if event[0] == RUN)
        # While publishes of a long run wait for another turn, the channel grants nothing for the run.
        unread += channel.taken
        self.most["channel"] = max(self.most["channel"], unread)
        grants = self.bumps(address, entry.channel_id) + channel.credit.deferred("connection")
        initial, more = self.stage.settings.credit_flow_default_credit
        assert (
            initial
            == connection.credit.credit_from(entry.channel_id)
            + unread
            + more
            - channel.credit.credit_to("connection")
            + grants
        )

    def channel_to_queue(self, address: Any, channel: Any, row: Any) -> None:
        queue = self.stage.actor(row.address)
        waiting = self.mailbox(row.address, "publish") + [
            ("publish", record.channel_id, entries) for record, entries in queue.role.publish_delay.delayed or ()
        ]
        unread = sum(
            len(entry[1]) for message in waiting if message[1] == channel.config.channel_id for entry in message[2]
        )
        self.most["queue"] = max(self.most["queue"], unread)
        grants = self.bumps(address, row.queue_id) + queue.channels.credit.deferred(channel.config.channel_id)
        initial, more = self.stage.settings.credit_flow_default_credit
        assert (
            initial
            == channel.credit.credit_from(row.queue_id)
            + unread
            + more
            - queue.channels.credit.credit_to(channel.config.channel_id)
            + grants
        )

    def bumps(self, address: Any, peer: str) -> int:
        return sum(message[2] for message in self.mailbox(address, "bump") if message[1] == peer)

    def mailbox(self, address: Any, name: str) -> list[tuple[Any, ...]]:
        return [message for message in self.stage.mailbox(address) if type(message) is tuple and message[0] == name]
