"""`DirectClient`: drives channels without a socket, for `Broker.publish`, `Broker.get` and declarations.

To a channel it is the owner; to the embedding program it is a function: one request, one answer. The requests of a
virtual host run one after the other on one channel in confirm mode, so a publish is answered when its queues have taken
it. A channel error answers the request that caused it and ends the channel; the next request opens another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ...amqp import methods
from ...amqp.constants import CONNECTION_FORCED, FRAME_BODY, FRAME_HEADER, FRAME_METHOD, SYNTAX_ERROR
from ...amqp.decoding import decode_method
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError
from ...amqp.frames import build_content, split_frames
from ...amqp.method import Method
from ...amqp.parser.events import ACKS, METHOD, RUN, Event
from ...amqp.parser.skimmer import fate
from ...definitions.access import Access
from ...runtime.contract import Address, Sender
from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..context.starting import ToNewChannel, ToNewDirectClient, to_new_channel
from ..contracts.channel import (
    ChannelConfig,
    DeliveryNotice,
    FetchedMessage,
    Outcome,
    ToChannel,
    to_channel,
)
from . import Channel
from .moving import MessageMoving

CHANNEL_NUMBER = 1
USER_NAME = "direct"

#: Bytes of properties and bodies from which on a `fetch` gets no further message. What it gets is in memory several
#: times, here and in whoever asks, until the answer is sent.
FETCHED_BYTES_MAX = 64 << 20


def _encoded(method: Method) -> bytes:
    """The bytes of a method, as another client would send it. Raise AmqpError for a name that does not fit AMQP: in a
    channel or in its answer the name would end a process.
    """
    try:
        return method.encode()
    except FieldError as error:
        raise AmqpError(SYNTAX_ERROR, str(error)) from None


class DirectClient(Process):
    contract = ToNewDirectClient
    reply_errors = (AmqpError,)

    def on_start(self, sender: Sender, context: NodeContext, user: str | None = None) -> None:
        self.context, self.user = context, user
        self.connection_id = f"direct.{self.random_bytes(8).hex()}"
        self.sessions: dict[str, _Session] = {}
        self.credit = CreditFlow(context.settings.credit_flow_default_credit, _no_grants, clock=self.now)
        self.serial = 0

    # -- requests ---

    def on_publish(
        self, sender: Sender, vhost: str, exchange: str, routing_key: str, props: bytes, body: bytes
    ) -> None:
        # Mandatory: a basic.return is how the client learns that the message reached no queue.
        payload = _encoded(methods.BasicPublish(0, exchange, routing_key, True, False))
        content = build_content(CHANNEL_NUMBER, props, body, self.context.settings.frame_max)
        key, expiration = fate(props)
        self._session(vhost).request(sender, (RUN, CHANNEL_NUMBER, payload, key, [content], len(body), expiration))

    def on_get(self, sender: Sender, vhost: str, queue: str, is_consumed: bool) -> None:
        method = methods.BasicGet(0, queue, is_consumed)
        _encoded(method)
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, method))

    def on_fetch(self, sender: Sender, vhost: str, queue: str, count: int, outcome: Outcome) -> None:
        method = methods.BasicGet(0, queue, False)
        _encoded(method)
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, method), _Fetching(count, outcome, []))

    def on_move(self, sender: Sender, vhost: str, source: str, destination: str, count: int) -> None:
        method = methods.BasicGet(0, source, False)
        _encoded(method)
        _encoded(methods.BasicPublish(0, "", destination, True, False))
        order = _Move(source, destination, count)
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, method), order)

    def on_call(self, sender: Sender, vhost: str, method: Method) -> None:
        self._session(vhost).request(sender, (METHOD, CHANNEL_NUMBER, decode_method(_encoded(method))))

    def lease_error(self) -> AmqpError | None:
        """The error with which requests are refused while this node may not act for its cluster (CL-52)."""
        if not self.context.lease.has_ended(self.now):
            return None
        node = self.context.node_name
        return AmqpError(CONNECTION_FORCED, f"node '{node}' cannot reach a majority of its cluster; try again later")

    def _session(self, vhost: str) -> _Session:
        error = self.lease_error()
        if error is not None:
            raise error
        session = self.sessions.get(vhost)
        if session is None:
            if not self.context.routing.has_vhost(vhost):
                raise AmqpError(530, f"vhost {vhost} not found")
            session = self.sessions[vhost] = _Session(self, vhost)
        return session

    def on_forget_vhost(self, sender: Sender, vhost: str) -> None:
        session = self.sessions.pop(vhost, None)
        if session is not None:
            session.end(AmqpError(320, f"vhost '{vhost}' is deleted"))

    # -- messages from channels ---

    def on_output(self, sender: Sender, pieces: list[bytes], notices: list[DeliveryNotice]) -> None:
        session = self._session_of(sender)
        if session is not None:
            session.output(b"".join(pieces))

    def on_bump(self, sender: Sender, channel_id: str, amount: int) -> None:
        self.credit.bump(channel_id, amount)
        for session in list(self.sessions.values()):
            if session.channel_id == channel_id:
                session.go_on()

    def on_channel_failed(self, sender: Address[ToChannel], number: int, error: AmqpError) -> None:
        session = self._session_of(sender)
        if session is not None:
            session.fail(error)
        # After such an error a channel waits for its owner to end it, as a connection that closes does.
        self.send(sender, to_channel.shut_down())

    def on_channel_error(self, sender: Sender, number: int, code: int, text: str) -> None:
        """Do nothing: the channel.close that follows as output answers the request."""

    def on_channel_closed(
        self, sender: Sender, channel_id: str, is_crossed: bool, pieces: list[bytes], notices: list[DeliveryNotice]
    ) -> None:
        if pieces:
            self.on_output(sender, pieces, notices)

    def on_pause_input(self, sender: Sender, number: int, is_paused: bool) -> None:
        """Do nothing: with one request at a time, a channel's backlog is never full."""

    def on_down(self, channel_id: str, reason: ExitReason) -> None:
        self.credit.peer_down(channel_id)
        for session in self.sessions.values():
            if session.channel_id == channel_id:
                session.fail(AmqpError(541, str(reason)))

    def _session_of(self, channel: Sender) -> _Session | None:
        for session in self.sessions.values():
            if session.address is not None and session.address == channel:
                return session
        return None


class _Session:
    """The requests of one virtual host, and the channel that serves them."""

    def __init__(self, client: DirectClient, vhost: str) -> None:
        self.client = client
        self.vhost = vhost
        #: The channel; None until a request needs one.
        self.address: Address[ToChannel] | None = None
        self.channel_id = ""
        self.waiting: deque[_Request] = deque()
        #: The request that the channel works on.
        self.current: _Request | None = None
        #: The beginning of a frame, the rest of which has not arrived.
        self.rest = b""
        self.assembly: _MessageAssembly | None = None
        self.is_returned = False
        #: The messages that were published on the channel, which numbers their confirms.
        self.published = 0
        #: The current request, if it moves messages.
        self.moving: MessageMoving | None = None

    def request(self, sender: Sender, event: Event, state: _Fetching | _Move | None = None) -> None:
        self.waiting.append((sender, event, state))
        if self.current is None:
            self._next()

    def _next(self) -> None:
        if not self.waiting:
            return
        self.current = self.waiting.popleft()
        if self.address is None:
            self.address = self._open()
        event, state = self.current[1:]
        self.is_returned = False
        if isinstance(state, _Move):
            frame_max, credit = self.client.context.settings.frame_max, self.client.credit
            self.moving = MessageMoving(
                *state, CHANNEL_NUMBER, frame_max, self.published, self._send, lambda: not credit.blocked
            )
            self.moving.go_on()
        else:
            self._send(event)

    def _open(self) -> Address[ToChannel]:
        client = self.client
        client.serial += 1
        self.channel_id = f"{client.connection_id}.{client.serial}"
        self.rest, self.assembly, self.published = b"", None, 0
        config = ChannelConfig(
            self.channel_id,
            client.connection_id,
            connection_name=USER_NAME,
            number=CHANNEL_NUMBER,
            vhost=self.vhost,
            user=USER_NAME if client.user is None else client.user,
            frame_max=0,
            has_cancel_notify=False,
            access=Access(client.context.definitions, client.user, self.vhost),
            is_listed=False,
        )
        address: Address[ToNewChannel] = client.createActor(Channel)
        client.send(address, to_new_channel.start(client.context, config))
        client.monitor(address, self.channel_id)
        opening = methods.ChannelOpen(""), methods.ConfirmSelect(True)
        client.send(address, to_channel.input([(METHOD, CHANNEL_NUMBER, method) for method in opening]))
        return address

    def output(self, data: bytes) -> None:
        """Take frames of the channel, and answer the current request when they complete its reply."""
        frames, self.rest = split_frames(self.rest + data)
        for kind, _, payload in frames:
            if kind == FRAME_METHOD:
                method = decode_method(payload, is_of_broker=True)
                if method.HAS_CONTENT:
                    self.assembly = _MessageAssembly(method)
                else:
                    self._replied(method)
            elif self.assembly is not None and self.assembly.add(kind, payload):
                assembly, self.assembly = self.assembly, None
                self._replied(assembly.method, assembly)

    def _replied(self, method: Method, assembly: _MessageAssembly | None = None) -> None:
        if isinstance(method, methods.ChannelOpenOk):
            return
        if self.moving is not None and not isinstance(method, methods.ChannelClose):
            if isinstance(method, methods.BasicGetOk) and assembly is not None:
                self.moving.fetched(method, assembly.props, assembly.body)
            else:
                self.moving.replied(method)
            self.go_on()
        elif isinstance(method, methods.BasicReturn):
            self.is_returned = True
        elif isinstance(method, methods.BasicAck):
            self._answer(not self.is_returned)
        elif isinstance(method, methods.BasicNack):
            self._answer_error(AmqpError(406, "the message was refused by a queue"))
        elif (
            self.current is not None
            and isinstance(self.current[2], _Fetching)
            and not isinstance(method, methods.ChannelClose)
        ):
            self._fetched(self.current[1], self.current[2], method, assembly)
        elif isinstance(method, methods.BasicGetOk) and assembly is not None:
            if self.current is not None and not self.current[1][2].no_ack:
                self._send_method(methods.BasicNack(method.delivery_tag, False, True))
            self._answer(_message(method, assembly))
        elif isinstance(method, methods.BasicGetEmpty):
            self._answer(None)
        elif isinstance(method, methods.ChannelClose):
            self._send_method(methods.ChannelCloseOk())
            text = method.reply_text.partition(" - ")[2]
            self.fail(AmqpError(method.reply_code, text, method.class_id, method.method_id))
        else:
            self._answer(method)

    def go_on(self) -> None:
        """Go on with moving messages, if that is the current request, and answer when it is over."""
        if self.moving is not None and self.moving.go_on():
            result = self.moving.result()
            self.moving = None
            self._answer(result)

    def _fetched(self, event: Event, fetching: _Fetching, method: Method, assembly: _MessageAssembly | None) -> None:
        """Get the next message, or settle all and answer. They are settled together after the last one, because a
        message that was requeued earlier would be fetched again.
        """
        if isinstance(method, methods.BasicGetOk) and assembly is not None:
            fetching.messages.append(_message(method, assembly))
            fetching.last_tag = method.delivery_tag
            fetching.bytes += len(assembly.props) + len(assembly.body)
            if len(fetching.messages) < fetching.count and fetching.bytes < FETCHED_BYTES_MAX:
                self._send_method(event[2])
                return
        if fetching.messages:
            if fetching.outcome == "ack":
                self._send((ACKS, CHANNEL_NUMBER, [(fetching.last_tag, True)]))
            else:
                self._send_method(methods.BasicNack(fetching.last_tag, True, fetching.outcome == "requeue"))
        self._answer(fetching.messages)

    def _send_method(self, method: Method) -> None:
        self._send((METHOD, CHANNEL_NUMBER, method))

    def _send(self, event: Event) -> None:
        if self.address is None:
            return
        if event[0] == RUN:
            self.published += 1
            self.client.credit.spend(self.channel_id, 1)
        self.client.send(self.address, to_channel.input([event]))

    def _answer(self, value: object) -> None:
        error = self.client.lease_error()
        if error is not None:
            # The lease ended while the request was under way. It may have taken effect, as after any lost connection.
            self._answer_error(error)
        elif self.current is not None:
            sender, self.current = self.current[0], None
            self.client.reply(sender, value)
            self._next()

    def _answer_error(self, error: AmqpError) -> None:
        if self.current is not None:
            sender, self.current = self.current[0], None
            self.client.reply_error(sender, error)
            self._next()

    def end(self, error: AmqpError) -> None:
        """Answer all requests with `error` and end the channel."""
        address = self.address
        for sender, _, _ in self.waiting:
            self.client.reply_error(sender, error)
        self.waiting.clear()
        self.fail(error)
        if address is not None:
            self.client.request_exit(address)

    def fail(self, error: AmqpError) -> None:
        """Answer the current request with `error` and drop the channel; the next request opens another."""
        self.client.demonitor(self.channel_id)
        self.client.credit.peer_down(self.channel_id)
        self.address = self.moving = None
        self._answer_error(error)


@dataclass(slots=True)
class _Fetching:
    """A `fetch` in progress: the messages so far, and how all of them will be settled."""

    count: int
    outcome: Outcome
    messages: list[FetchedMessage]
    last_tag: int = 0
    #: The sum of the properties and bodies so far.
    bytes: int = 0


class _Move(NamedTuple):
    """A `move` that waits for its turn: from which queue to which one, and how many messages at most."""

    source: str
    destination: str
    most: int


#: A request for the channel: its sender, the event to send to the channel, and the state of a `fetch` or the order of a
#: `move`.
_Request = tuple[Sender, Event, _Fetching | _Move | None]


def _message(method: methods.BasicGetOk, assembly: _MessageAssembly) -> FetchedMessage:
    return FetchedMessage(
        assembly.props,
        assembly.body,
        method.exchange,
        method.routing_key,
        method.redelivered,
        method.message_count,
    )


class _MessageAssembly:
    """A method from the channel and its content, frame by frame."""

    __slots__ = ("_missing", "_pieces", "body", "method", "props")

    def __init__(self, method: Method) -> None:
        self.method = method
        self.props = b""
        #: Empty until the content is complete.
        self.body = b""
        self._pieces: list[bytes] = []
        self._missing = -1  # bytes of the body; unknown before the header

    def add(self, kind: int, payload: bytes) -> bool:
        """Add a header or body frame; True when the content is complete."""
        if kind == FRAME_HEADER:
            self._missing = int.from_bytes(payload[4:12], "big")
            self.props = payload[12:]
        elif kind == FRAME_BODY:
            self._missing -= len(payload)
            self._pieces.append(payload)
        if self._missing == 0:
            # Joined once: to add each frame to those before takes seconds for a body of 100 MB.
            self.body = b"".join(self._pieces)
            return True
        return False


def _no_grants(peer: str, amount: int) -> None:
    raise AssertionError("no process sends credited messages to a direct client")
