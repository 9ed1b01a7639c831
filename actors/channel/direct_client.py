"""`DirectClient`: drives a real channel without a socket, for the broker's own face (`Broker.publish`, `Broker.get`, declarations).

To the channel it is a connection; to whoever asks it is a function: one request, one answer. Requests of a virtual host run one after the other on one
channel in confirm mode, so that a publish is answered when it is safe in its queues. A channel exception answers the request that caused it and costs only the
channel, which the next request opens anew.

    ('publish', vhost, exchange, routing_key, props, body, mandatory)   -> True, or False if it reached no queue; AmqpError 406 if a queue refused it
    ('get', vhost, queue, consume)     -> None or (props, body, exchange, routing_key, redelivered, messages left); consume False leaves it in the queue
    ('call', vhost, method)            -> the reply method
"""

from __future__ import annotations

from collections import deque
from typing import Any

from thespian.actors import ActorExitRequest

from ...amqp import methods
from ...amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from ...amqp.decoding import decode_method
from ...amqp.errors import AmqpError
from ...amqp.frames import build_content, split_frames
from ...amqp.reader import METHOD, RUN
from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ..node.context import NodeContext
from . import Channel

CHANNEL_NUMBER = 1
USER_NAME = "direct"


class DirectClient(Process):
    reply_errors = (AmqpError,)

    def on_start(self, sender: Any, context: NodeContext) -> None:
        self.context = context
        self.connection_id = f"direct.{self.random_bytes(8).hex()}"
        self.sessions: dict[str, "_Session"] = {}
        self.credit = CreditFlow(context.settings.credit_flow_default_credit, _no_grants, clock=self.now)
        self.serial = 0

    def on_publish(
        self, sender: Any, vhost: str, exchange: str, routing_key: str, props: bytes, body: bytes, mandatory: bool
    ) -> None:
        # Mandatory always: its return is how we learn that nothing was reached.
        payload = methods.BasicPublish(0, exchange, routing_key, True, False).encode()
        content = build_content(CHANNEL_NUMBER, props, body, self.context.settings.frame_max)
        self._session(vhost).request(sender, (RUN, CHANNEL_NUMBER, payload, props, [content], len(body)))

    def on_get(self, sender: Any, vhost: str, queue: str, consume: bool) -> None:
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, methods.BasicGet(0, queue, consume)))

    def on_call(self, sender: Any, vhost: str, method: Any) -> None:
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, method))

    def _session(self, vhost: str) -> "_Session":
        session = self.sessions.get(vhost)
        if session is None:
            if not self.context.routing.has_vhost(vhost):
                raise AmqpError(530, f"vhost {vhost} not found")
            session = self.sessions[vhost] = _Session(self, vhost)
        return session

    def on_forget_vhost(self, sender: Any, vhost: str) -> None:
        """It is deleted: what is asked of it is refused, and its channel ends (AB-170)."""
        session = self.sessions.pop(vhost, None)
        if session is not None:
            session.end(AmqpError(320, f"vhost '{vhost}' is deleted"))

    # -- what a channel tells its connection ----------------------------------------------------------------------------------------------------

    def on_output(self, sender: Any, data: bytes, notices: list) -> None:
        session = self._of(sender)
        if session is not None:
            session.output(data)

    def on_bump(self, sender: Any, channel_id: str, amount: int) -> None:
        self.credit.bump(channel_id, amount)

    def on_channel_failed(self, sender: Any, number: int, error: AmqpError) -> None:
        session = self._of(sender)
        if session is not None:
            session.failed(error)

    def on_channel_error(self, sender: Any, number: int, code: int, text: str) -> None:
        """Its channel.close follows as output."""

    def on_channel_closed(self, sender: Any, channel_id: str, crossed: bool, data: bytes, notices: list) -> None:
        """It stops by itself; `on_down` tells."""
        if data:
            self.on_output(sender, data, notices)

    def on_pause_input(self, sender: Any, number: int, paused: bool) -> None:
        """One request at a time never fills a channel's backlog."""

    def on_down(self, channel_id: str, reason: ExitReason) -> None:
        self.credit.peer_down(channel_id)
        for session in self.sessions.values():
            if session.channel_id == channel_id:
                session.failed(AmqpError(541, str(reason)))

    def _of(self, address: Any) -> "_Session | None":
        return next(
            (
                session
                for session in self.sessions.values()
                if session.address is not None and session.address == address
            ),
            None,
        )


class _Session:
    """The requests of one virtual host and the channel that serves them."""

    def __init__(self, client: DirectClient, vhost: str) -> None:
        self.client = client
        self.vhost = vhost
        self.address: Any = None
        self.channel_id = ""
        self.waiting: deque[tuple[Any, tuple]] = deque()
        self.current: tuple[Any, tuple] | None = None
        self.rest = b""
        self.content: _Content | None = None
        self.returned = False

    def request(self, sender: Any, event: tuple) -> None:
        self.waiting.append((sender, event))
        if self.current is None:
            self._next()

    def _next(self) -> None:
        if not self.waiting:
            return
        self.current = self.waiting.popleft()
        if self.address is None:
            self._open()
        event = self.current[1]
        self.returned = False
        if event[0] == RUN:
            self.client.credit.spend(self.channel_id, 1)
        self.client.send(self.address, ("input", [event]))

    def _open(self) -> None:
        client = self.client
        client.serial += 1
        self.channel_id = f"{client.connection_id}.{client.serial}"
        self.rest, self.content = b"", None
        self.address = client.createActor(Channel)
        client.send(
            self.address,
            (
                "start",
                client.context,
                self.channel_id,
                client.connection_id,
                USER_NAME,
                CHANNEL_NUMBER,
                self.vhost,
                USER_NAME,
                0,
                False,
            ),
        )
        client.monitor(self.address, self.channel_id)
        client.send(
            self.address,
            (
                "input",
                [
                    (METHOD, CHANNEL_NUMBER, methods.ChannelOpen("")),
                    (METHOD, CHANNEL_NUMBER, methods.ConfirmSelect(True)),
                ],
            ),
        )

    def output(self, data: bytes) -> None:
        frames, self.rest = split_frames(self.rest + data)
        for kind, _, payload in frames:
            if kind == FRAME_METHOD:
                method = decode_method(payload)
                if method.HAS_CONTENT:
                    self.content = _Content(method)
                else:
                    self._answered(method)
            elif self.content is not None and self.content.take(kind, payload):
                content, self.content = self.content, None
                self._answered(content.method, content)

    def _answered(self, method: Any, content: "_Content | None" = None) -> None:
        kind = type(method)
        if kind is methods.ChannelOpenOk:
            return
        if kind is methods.BasicReturn:
            self.returned = True
        elif kind is methods.BasicAck:
            self._reply(not self.returned)
        elif kind is methods.BasicNack:
            self._reply_error(AmqpError(406, "the message was refused by a queue"))
        elif kind is methods.BasicGetOk and content is not None:
            if self.current is not None and not self.current[1][2].no_ack:
                self.client.send(
                    self.address,
                    ("input", [(METHOD, CHANNEL_NUMBER, methods.BasicNack(method.delivery_tag, False, True))]),
                )
            self._reply(
                (
                    content.props,
                    content.body,
                    method.exchange,
                    method.routing_key,
                    method.redelivered,
                    method.message_count,
                )
            )
        elif kind is methods.BasicGetEmpty:
            self._reply(None)
        elif kind is methods.ChannelClose:
            self.client.send(self.address, ("input", [(METHOD, CHANNEL_NUMBER, methods.ChannelCloseOk())]))
            self.failed(
                AmqpError(method.reply_code, method.reply_text.partition(" - ")[2], method.class_id, method.method_id)
            )
        else:
            self._reply(method)

    def _reply(self, value: Any) -> None:
        if self.current is not None:
            sender, self.current = self.current[0], None
            self.client.reply(sender, value)
            self._next()

    def _reply_error(self, error: AmqpError) -> None:
        if self.current is not None:
            sender, self.current = self.current[0], None
            self.client.reply_error(sender, error)
            self._next()

    def end(self, error: AmqpError) -> None:
        """Refuses all requests, and takes the channel along."""
        address = self.address
        for sender, _ in self.waiting:
            self.client.reply_error(sender, error)
        self.waiting.clear()
        self.failed(error)
        if address is not None:
            self.client.send(address, ActorExitRequest())

    def failed(self, error: AmqpError) -> None:
        """The channel is of no more use; the next request opens another."""
        self.client.demonitor(self.channel_id)
        self.client.credit.peer_down(self.channel_id)
        self.address = None
        self._reply_error(error)


class _Content:
    """The content of a method from the channel, as its frames come in."""

    __slots__ = ("method", "props", "body", "_left")

    def __init__(self, method: Any) -> None:
        self.method = method
        self.props = b""
        self.body = b""
        self._left = -1

    def take(self, kind: int, payload: bytes) -> bool:
        """True when it is complete."""
        if kind == FRAME_HEADER:
            self._left = int.from_bytes(payload[4:12], "big")
            self.props = payload[12:]
        elif kind == FRAME_BODY:
            self._left -= len(payload)
            self.body += payload
        return self._left == 0


def _no_grants(peer: Any, amount: int) -> None:
    raise AssertionError("nobody sends credited messages to a direct client")
