"""A blocking connection to a broker: log in, call methods, receive deliveries, publish with confirms.

A task of Spark does one thing at a time, so it waits on its socket. Channel 1 is the only one, and after the broker has
closed it, it is opened again.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..amqp import methods
from ..amqp.constants import FRAME_METHOD, PROTOCOL_HEADER
from ..amqp.decoding import decode_method
from ..amqp.errors import AmqpError
from ..amqp.fields import FieldError, table_from, table_to_dict
from ..amqp.frames import heartbeat, method_frame
from ..amqp.method import Method
from .endpoints import Endpoint
from .errors import not_warren, wrong_option
from .frame_input import FrameInput
from .options import ConnectionOptions

log = logging.getLogger("warren.spark")

CHANNEL = 1
#: Seconds that the broker may take to answer a method.
ANSWER_SECONDS = 60.0
#: Seconds after which the operating system probes a peer that sends nothing, and between two probes.
KEEP_ALIVE = 15

_CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
_DELIVER = b"\x00\x3c\x00\x3c"
#: How many different `PublishedAs` are remembered at most.
KNOWN = 4096


class Away(Exception):
    """The broker cannot be reached, or the connection broke; trying again may help."""


class Silent(Away):
    """The broker has sent nothing, or taken nothing, for the timeout of the socket."""


class Refused(Exception):
    """The broker has closed the channel or the connection with this reply code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text

    @property
    def has_no_queue(self) -> bool:
        """Whether there is no such queue."""
        return self.code == 404 and self.text.startswith("NOT_FOUND - no queue")

    @property
    def has_idle_queue(self) -> bool:
        """Whether the queue exists, with its messages, but does not run: its node is down, or its process has crashed.

        As in RabbitMQ, only the text tells this from a queue that is missing.
        """
        return self.code == 404 and not self.has_no_queue


class PublishedAs(NamedTuple):
    """Where a message that the broker sends was published, and whether it may have been delivered before."""

    exchange: str
    routing_key: str
    redelivered: bool


class ReceivedContent(NamedTuple):
    """A delivered message, or one that the broker returns. `content` is its header frame and its body frames as they
    came, or an array with the bytes of the body for a consumer that takes bodies alone.
    """

    published: PublishedAs
    content: Any
    is_returned: bool = False


class BrokerConnection:
    """One connection with one open channel. Raises Away, Refused, and SparkSourceError E4.

    The endpoints `first` are tried before those of the options, and `others` after them. An open connection has these
    attributes:

    endpoint     the host and port to which it is connected
    where        the same as a text
    features     the names in the broker's `warren_features`, which are warren's additions to AMQP
    product      the broker's name and version
    is_warren    whether the broker is warren
    is_blocked   whether the broker has sent connection.blocked and not connection.unblocked since
    frame_max    the negotiated size of a frame in bytes; 0 is no limit
    """

    def __init__(
        self,
        options: ConnectionOptions,
        name: str,
        heartbeat_seconds: int = 0,
        first: Sequence[Endpoint] = (),
        others: Sequence[Endpoint] = (),
    ) -> None:
        place = options.place()
        self.options = options
        self.is_blocked = False
        self._input = FrameInput(self._receive)
        #: What `_delivered` has found, by the bytes behind the tags.
        self._known: dict[bytes, PublishedAs] = {}
        #: The payload of the method frame of the last delivery.
        self.delivery = b""
        #: Whether the consumer takes the bodies of its deliveries alone, without their headers.
        self._wants_bodies = False
        self._heartbeat = heartbeat_seconds
        tls = _tls(options) if place.is_tls else None
        failed: dict[str, list[str]] = {}
        for endpoint in dict.fromkeys((*first, *place.endpoints, *others)):
            host, port = endpoint
            try:
                self._connect(host, port, options, tls)
                self.where = f"{host}:{port}"
                self._log_in(place.user, place.password, place.vhost, name)
                self.endpoint = endpoint
                return
            except (OSError, Away) as error:
                where = f"{host}:{port}"
                failed.setdefault(_reason(error).removeprefix(f"{where} "), []).append(where)
                self._drop()
            except Refused as refusal:
                # Another broker may have the address that a node of the cluster has on another machine.
                if endpoint in place.endpoints:
                    raise
                failed.setdefault(f"refused the login: {refusal}", []).append(f"{host}:{port}")
                self._drop()
        raise Away(", ".join(f"{' and '.join(places)} {reason}" for reason, places in failed.items()))

    def _connect(self, host: str, port: int, options: ConnectionOptions, tls: ssl.SSLContext | None) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), options.connect_timeout)
        self.socket.settimeout(max(options.connect_timeout, ANSWER_SECONDS))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for setting in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, setting):
                self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, setting), KEEP_ALIVE)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=options.tls_server_name or host)

    def _drop(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()
        self._input = FrameInput(self._receive)

    def _log_in(self, user: str, password: str, vhost: str, name: str) -> None:
        self.socket.sendall(PROTOCOL_HEADER)
        start = self.wait(methods.ConnectionStart)
        properties = table_to_dict(start.server_properties)
        self.product = f"{properties.get('product', 'another broker')} {properties.get('version', '')}".strip()
        self.is_warren = "warren_version" in properties
        self.features = frozenset(map(str, properties.get("warren_features", ())))
        client = table_from({"product": "warren spark", "connection_name": name, "capabilities": _CAPABILITIES})
        self.send(methods.ConnectionStartOk(client, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"), 0)
        tune = self.wait(methods.ConnectionTune)
        self.frame_max: int = tune.frame_max
        self.send(methods.ConnectionTuneOk(tune.channel_max, tune.frame_max, self._heartbeat), 0)
        self.send(methods.ConnectionOpen(vhost), 0)
        self.wait(methods.ConnectionOpenOk)
        self.open_channel()

    def require_warren(self) -> None:
        """Raise SparkSourceError E3 if the broker is another product."""
        if not self.is_warren:
            raise not_warren(self.where, self.product)

    # -- methods ---

    def open_channel(self) -> None:
        """Open the channel, again after the broker has closed it."""
        self.call(methods.ChannelOpen(), methods.ChannelOpenOk)

    def call(self, method: Method, answer: type[Method]) -> Any:
        """Send a method and wait for its answer."""
        self.send(method)
        return self.wait(answer)

    def send(self, method: Method, channel: int = CHANNEL) -> None:
        self.send_bytes(method_frame(channel, method))

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Away(f"{self.where} {_reason(error)}") from error

    def wait(self, wanted: type[Method]) -> Any:
        """The next method of that type; deliveries and other methods before it are dropped."""
        while True:
            found = self.receive()
            if isinstance(found, wanted):
                return found

    def declare_passively(self, queue: str) -> bool:
        """Whether a queue exists that this user may read. Raises Away if it exists and does not run."""
        try:
            self.call(methods.QueueDeclare(queue=queue, passive=True), methods.QueueDeclareOk)
        except Refused as refused:
            if refused.code != 404:
                raise
            self.open_channel()
            if refused.has_idle_queue:
                raise Away(f"{self.where} answers: {refused.text}") from refused
            return False
        return True

    def consume(
        self, queue: str, arguments: Mapping[str, Any], wants_bodies: bool = False
    ) -> Iterator[ReceivedContent]:
        """Consume without acknowledgements until the broker cancels the consumer.

        A reader of a range is cancelled when the range is read; another consumer goes on for ever.
        """
        self._wants_bodies = wants_bodies
        table = table_from(arguments)
        self.send(methods.BasicConsume(queue=queue, no_ack=True, arguments=table))
        while True:
            found = self.receive()
            if isinstance(found, ReceivedContent):
                yield found
            elif isinstance(found, methods.BasicCancel):
                if not found.nowait:
                    self.send(methods.BasicCancelOk(found.consumer_tag))
                return

    # -- receiving ---

    def receive(self) -> Method | ReceivedContent:
        """Wait for the next method or delivery. Raises Refused when the broker closes channel or connection."""
        while True:
            kind, payload = self._input.frame()
            if kind != FRAME_METHOD:
                continue  # a heartbeat
            if payload.startswith(_DELIVER):
                self.delivery = payload
                content = self._input.body() if self._wants_bodies else self._input.content()
                return ReceivedContent(self._delivered(payload), content)
            method = decode_method(payload)
            if isinstance(method, methods.BasicReturn):
                return ReceivedContent(
                    PublishedAs(method.exchange, method.routing_key, False), self._input.content(), True
                )
            if isinstance(method, methods.ChannelClose):
                self.send(methods.ChannelCloseOk())
                raise Refused(method.reply_code, method.reply_text)
            if isinstance(method, methods.ConnectionClose):
                self.send(methods.ConnectionCloseOk(), 0)
                raise _closed(method)
            if isinstance(method, (methods.ConnectionBlocked, methods.ConnectionUnblocked)):
                self.is_blocked = isinstance(method, methods.ConnectionBlocked)
            return method

    def received(self) -> memoryview:
        """The bytes behind the last method or delivery that have been received. They hold until the next call."""
        return self._input.received()

    def skip(self, size: int) -> None:
        """Take deliveries of so many bytes, which the caller has found in `received`."""
        self._input.skip(size)

    def _delivered(self, payload: bytes) -> PublishedAs:
        """The fields of a basic.deliver behind its tags. Deliveries with equal bytes there share one `PublishedAs`."""
        rest = payload[13 + payload[4] :]
        found = self._known.get(rest)
        if found is None:
            method = decode_method(payload)
            assert isinstance(method, methods.BasicDeliver)
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = self._known[rest] = PublishedAs(method.exchange, method.routing_key, method.redelivered)
        return found

    def _receive(self, into: memoryview) -> int:
        while True:
            try:
                received = self.socket.recv_into(into)
            except TimeoutError as error:
                if self.is_blocked:
                    self.report_blocked()
                    continue
                raise Silent(f"{self.where} has sent nothing") from error
            except OSError as error:
                raise Away(f"{self.where} {_reason(error)}") from error
            if not received:
                raise Away(f"{self.where} closed the connection")
            return received

    def report_blocked(self) -> None:
        """Log that the broker takes no messages, so that the user can see what a task waits for."""
        log.warning("%s takes no messages, because it is short of memory or disk; waiting", self.where)

    def send_some(self, data: memoryview) -> memoryview:
        """Wait until there is input or the socket takes output, and send what it takes; returns the rest of the data.

        A broker that takes no messages stops reading and sends connection.blocked. Raises Away if it neither reads nor
        sends for the timeout of the socket.
        """
        if self.has_input():
            wanted = 0.0
        else:
            wanted = self.socket.gettimeout() or 0.0
        readable, writable, _ = select.select([self.socket], [self.socket], [], wanted)
        if writable:
            try:
                return data[self.socket.send(data) :]
            except OSError as error:
                raise Away(f"{self.where} {_reason(error)}") from error
        if not readable and wanted:
            if not self.is_blocked:
                raise Silent(f"{self.where} has taken nothing")
            self.report_blocked()
        return data

    def has_input(self, timeout: float = 0.0) -> bool:
        """Whether something has arrived, after waiting for it at most `timeout` seconds."""
        if self._input:
            return True
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        return bool(select.select([self.socket], [], [], timeout)[0])

    def beat(self) -> None:
        """Send a heartbeat."""
        self.send_bytes(heartbeat())

    def close(self) -> None:
        """Close the connection, in order if the broker still answers. Idempotent."""
        try:
            self.socket.settimeout(1.0)
            self.socket.sendall(method_frame(0, methods.ConnectionClose(200, "done")))
            self.wait(methods.ConnectionCloseOk)
        except (OSError, Away, Refused, AmqpError):
            pass
        self.socket.close()

    def abort(self) -> None:
        """Close the socket at once, because the rest of the range is not needed."""
        self.socket.close()


def _tls(options: ConnectionOptions) -> ssl.SSLContext:
    """Raises SparkSourceError E4 for a file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=_file(options.tls_ca_file))
    except OSError as error:
        raise wrong_option("tlsCaFile", str(options.tls_ca_file), f"a file of certificates in PEM ({error})") from None
    if options.tls_verify == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert_file is not None:
        try:
            context.load_cert_chain(str(_file(options.tls_cert_file)), _file(options.tls_key_file))
        except OSError as error:
            wanted = f"a certificate in PEM whose key is in the same file or in tlsKeyFile ({error})"
            raise wrong_option("tlsCertFile", options.tls_cert_file, wanted) from None
    return context


def _file(name: str | None) -> str | None:
    """A path on this machine; a bare name is that of a file that Spark distributes (`SparkFiles`)."""
    if name is None or "/" in name:
        return name
    from pyspark import SparkFiles

    return str(SparkFiles.get(name))


def _closed(method: methods.ConnectionClose) -> Exception:
    # 320: an operator, or the node as it stops, closes the connection; 541: the broker has crashed somewhere.
    if method.reply_code in (320, 541):
        return Away(f"the broker closed the connection: {method.reply_code} {method.reply_text}")
    return Refused(method.reply_code, method.reply_text)


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused connections"
    if isinstance(error, TimeoutError):
        return "did not answer"
    if isinstance(error, Away):
        return str(error)
    if isinstance(error, (AmqpError, FieldError)):
        return f"does not speak AMQP 0-9-1: {error}"
    return f"cannot be reached: {getattr(error, 'strerror', None) or error}"
