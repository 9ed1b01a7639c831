"""A blocking connection to a broker: log in, call methods, receive deliveries, publish with confirms.

A task of Spark does one thing at a time, so it waits on its socket. Channel 1 is the only one, and after the broker has
closed it, it is opened again.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..amqp import methods
from ..amqp.constants import FRAME_METHOD, PROTOCOL_HEADER
from ..amqp.decoding import decode_method
from ..amqp.errors import AmqpError
from ..amqp.fields import FieldError, table_from, table_to_dict
from ..amqp.frames import HEAD, heartbeat, method_frame
from ..amqp.method import Method
from .errors import not_warren
from .options import ConnectionOptions

CHANNEL = 1
#: Bytes asked of the socket at once.
RECEIVE_BYTES = 1 << 20
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
_DELIVER, _RETURN = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x32"


class Away(Exception):
    """The broker cannot be reached, or the connection broke; trying again may help."""


class Refused(Exception):
    """The broker has closed the channel or the connection with this reply code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ReceivedContent(NamedTuple):
    """A delivered or returned message. `content` is its header frame and its body frames as they came."""

    method: Method
    content: bytes


class BrokerConnection:
    """One connection with one open channel. Raises Away, Refused, and SparkSourceError E4.

    features    names of what the broker announces beyond AMQP, in `warren_features`
    product     what the broker calls itself
    is_warren   whether the broker is warren
    """

    def __init__(self, options: ConnectionOptions, name: str, heartbeat_seconds: int = 0, at: str = "") -> None:
        place = options.place()
        self.options = options
        self.is_blocked = False
        self._rest = bytearray()
        self._heartbeat = heartbeat_seconds
        endpoints = list(place.endpoints)
        if at:
            name_there, _, number = at.rpartition(":")
            preferred = options.mapped(name_there, int(number))
            endpoints = [preferred, *(each for each in endpoints if each != preferred)]
        failed = []
        for host, port in endpoints:
            try:
                self._connect(host, port, options, place.is_tls)
                self.where = f"{host}:{port}"
                self._log_in(place.user, place.password, place.vhost, name)
                return
            except (OSError, Away) as error:
                failed.append(f"{host}:{port} {_reason(error)}")
                self._drop()
        raise Away(" and ".join(failed))

    def _connect(self, host: str, port: int, options: ConnectionOptions, is_tls: bool) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), options.connect_timeout)
        self.socket.settimeout(max(options.connect_timeout, ANSWER_SECONDS))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for setting in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, setting):
                self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, setting), KEEP_ALIVE)
        if is_tls:
            self.socket = _tls(options).wrap_socket(self.socket, server_hostname=options.tls_server_name or host)

    def _drop(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()
        self._rest = bytearray()

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
        """Whether a queue exists that this user may read."""
        try:
            self.call(methods.QueueDeclare(queue=queue, passive=True), methods.QueueDeclareOk)
        except Refused as refused:
            if refused.code != 404:
                raise
            self.open_channel()
            return False
        return True

    def consume(self, queue: str, arguments: Mapping[str, Any]) -> Iterator[ReceivedContent]:
        """Consume without acknowledgements until the broker cancels the consumer.

        A reader of a range is cancelled when the range is read; another consumer goes on for ever.
        """
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
            kind, channel, payload = self._frame()
            if kind != FRAME_METHOD:
                continue  # a heartbeat
            method = decode_method(bytes(payload))
            if payload[:4] in (_DELIVER, _RETURN):
                return ReceivedContent(method, self._content())
            if isinstance(method, methods.ChannelClose):
                self.send(methods.ChannelCloseOk())
                raise Refused(method.reply_code, method.reply_text)
            if isinstance(method, methods.ConnectionClose):
                self.send(methods.ConnectionCloseOk(), 0)
                raise _closed(method)
            if isinstance(method, (methods.ConnectionBlocked, methods.ConnectionUnblocked)):
                self.is_blocked = isinstance(method, methods.ConnectionBlocked)
                continue
            return method

    def _frame(self) -> tuple[int, int, bytes]:
        head = self._take(7)
        kind, channel, size = HEAD.unpack(head)
        return kind, channel, self._take(size + 1)[:-1]

    def _content(self) -> bytes:
        parts = [self._whole_frame()]
        left = int.from_bytes(parts[0][11:19], "big")
        while left > 0:
            part = self._whole_frame()
            parts.append(part)
            left -= len(part) - 8
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _whole_frame(self) -> bytes:
        while True:
            self._fill(7)
            size = int.from_bytes(self._rest[3:7], "big") + 8
            frame = self._take(size)
            if frame[0] != 8:
                return frame

    def _take(self, size: int) -> bytes:
        self._fill(size)
        taken = bytes(memoryview(self._rest)[:size])
        del self._rest[:size]
        return taken

    def _fill(self, size: int) -> None:
        while len(self._rest) < size:
            try:
                data = self.socket.recv(max(RECEIVE_BYTES, size - len(self._rest)))
            except TimeoutError as error:
                raise Away(f"{self.where} has sent nothing for {self.socket.gettimeout():g} s") from error
            except OSError as error:
                raise Away(f"{self.where} {_reason(error)}") from error
            if not data:
                raise Away(f"{self.where} closed the connection")
            self._rest += data

    def has_input(self, timeout: float = 0.0) -> bool:
        """Whether something has arrived, waiting for it at most so long."""
        if self._rest:
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
    context = ssl.create_default_context(cafile=_file(options.tls_ca_file))
    if options.tls_verify == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert_file is not None:
        context.load_cert_chain(str(_file(options.tls_cert_file)), _file(options.tls_key_file))
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
