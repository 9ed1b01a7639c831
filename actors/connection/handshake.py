"""The beginning of a connection: protocol header, login, tuning, virtual host (AB-1 to AB-27)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.connection_state import check_method
from ...amqp.constants import FRAME_MIN_SIZE, PROTOCOL_HEADER
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.reader import HANDSHAKE, RUNNING
from ...version import __version__
from . import sasl
from .log_text import one_line

if TYPE_CHECKING:
    from .process import Connection

log = logging.getLogger("warren.connection")

#: What clients look at to decide which RabbitMQ they speak to (AB-8).
COMPATIBLE_PRODUCT, COMPATIBLE_VERSION = "RabbitMQ", "3.10.8"

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)

_ACCEPTED_HEADERS = (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")


class Handshake:
    """Drives a connection from its first octet to `running`."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.mechanism = ""
        self._header = b""
        self._proceed: Callable[[bytes], sasl.Credentials] | None = None
        connection.reader.phase = HANDSHAKE
        connection.start_timer(connection.settings.handshake_timeout / 1000, "handshake")

    def protocol_header(self, data: bytes) -> bytes:
        """Takes the 8 octets in front (AB-1) and returns what follows them."""
        self._header += data
        if len(self._header) < 8:
            return b""
        header, rest = self._header[:8], self._header[8:]
        connection = self.connection
        if header not in _ACCEPTED_HEADERS:
            log.warning("%s sent protocol header %r, which is not that of AMQP 0-9-1", connection.name, header)
            connection.output.put(PROTOCOL_HEADER)
            connection.closing.hang_up_when_written()
            return b""
        connection.state = "starting"
        settings = connection.settings
        connection.put_method(
            0,
            methods.ConnectionStart(
                0, 9, server_properties(settings), " ".join(connection.mechanisms).encode(), b"en_US"
            ),
        )
        return rest

    @property
    def heard_anything(self) -> bool:
        """Whether the client sent an octet: one that did not is a health check (AB-2)."""
        return bool(self._header)

    def method(self, method: Any) -> None:
        """A method on channel 0 before `running`."""
        check_method(self.connection.state, method)
        handlers: dict[type, Callable[[Any], None]] = {
            methods.ConnectionStartOk: self._start_ok,
            methods.ConnectionSecureOk: self._secure_ok,
            methods.ConnectionTuneOk: self._tune_ok,
            methods.ConnectionOpen: self._open,
        }
        handlers[type(method)](method)

    # -- login ----------------------------------------------------------------------------------------------------------------------------------

    def _start_ok(self, method: methods.ConnectionStartOk) -> None:
        connection = self.connection
        connection.client_properties = method.client_properties
        self.mechanism = method.mechanism
        self._login(sasl.begin(method.mechanism, method.response, connection.mechanisms, connection.certified))

    def _secure_ok(self, method: methods.ConnectionSecureOk) -> None:
        assert self._proceed is not None
        self._login(self._proceed(method.response))

    def _login(self, answer: sasl.Answer) -> None:
        connection = self.connection
        if isinstance(answer, sasl.Challenge):
            self._proceed = answer.proceed
            connection.state = "securing"
            connection.put_method(0, methods.ConnectionSecure(answer.text))
            return
        refusal = sasl.verify(answer, connection.settings, connection.peer[0])
        if refusal is not None:
            log.warning("%s refused: %s", connection.name, one_line(refusal))
            raise AmqpError(
                403,
                f"Login was refused using authentication mechanism {self.mechanism}. For details see the broker logfile.",
            )
        connection.user = answer.user
        connection.state = "tuning"
        settings = connection.settings
        connection.put_method(0, methods.ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat))

    # -- tune and open --------------------------------------------------------------------------------------------------------------------------

    def _tune_ok(self, method: methods.ConnectionTuneOk) -> None:
        """The client's values are used as they are, once they pass (AB-20, AB-21)."""
        connection = self.connection
        settings = connection.settings
        if 0 < method.frame_max < FRAME_MIN_SIZE:
            raise _refused(
                f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed value ({FRAME_MIN_SIZE})"
            )
        _check_limit("frame_max", method.frame_max, settings.frame_max)
        _check_limit("channel_max", method.channel_max, settings.channel_max)
        connection.frame_max = method.frame_max
        connection.channel_max = method.channel_max
        connection.heartbeat = method.heartbeat
        connection.reader.frame_max = method.frame_max
        connection.state = "opening"
        connection.start_heartbeats()

    def _open(self, method: methods.ConnectionOpen) -> None:
        connection = self.connection
        if connection.is_refused:
            text = f"connection refused: node connection limit ({connection.settings.connection_max}) is reached"
            raise AmqpError(530, text, methods.ConnectionOpen.CLASS_ID, methods.ConnectionOpen.METHOD_ID)
        vhost = method.virtual_host
        if not connection.context.routing.has_vhost(vhost):
            raise AmqpError(
                530, f"vhost {vhost} not found", methods.ConnectionOpen.CLASS_ID, methods.ConnectionOpen.METHOD_ID
            )
        if vhost in connection.context.routing.down:
            text = f"access to vhost '{vhost}' refused for user '{connection.user}': vhost '{vhost}' is down"
            raise AmqpError(541, text, methods.ConnectionOpen.CLASS_ID, methods.ConnectionOpen.METHOD_ID)
        connection.vhost = vhost
        connection.put_method(0, methods.ConnectionOpenOk(""))
        connection.reader.phase = RUNNING
        connection.opened()


def _check_limit(name: str, value: int, limit: int) -> None:
    if not limit:
        return
    if value == 0 and name == "channel_max":
        raise _refused(f"negotiated {name} = 0 (no limit) is higher than the maximum allowed value ({limit})")
    if value == 0 or value > limit:
        raise _refused(f"negotiated {name} = {value} is higher than the maximum allowed value ({limit})")


def _refused(text: str) -> AmqpError:
    return AmqpError(530, text, methods.ConnectionTuneOk.CLASS_ID, methods.ConnectionTune.METHOD_ID)


def server_properties(settings: Any) -> Table:
    """`connection.start`'s server properties: warren's own, overridden and extended by configuration (AB-7 to AB-9)."""
    texts = {
        "product": COMPATIBLE_PRODUCT,
        "version": COMPATIBLE_VERSION,
        "platform": "Python",
        "copyright": "The warren authors",
        "information": "Licensed under the Apache License 2.0",
        "cluster_name": settings.cluster_name,
        "warren_version": __version__,
        **settings.server_properties,
    }
    capabilities = Table((name, "t", True) for name in CAPABILITIES)
    return Table(
        [("capabilities", "F", capabilities), *((name, "S", text.encode("utf-8")) for name, text in texts.items())]
    )
