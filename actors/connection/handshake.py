"""`Handshake`: the beginning of a connection, from the protocol header to connection.open (AB-1 to AB-27).

It performs no I/O: each step takes what the client sent and returns the next state and the method to send. An AmqpError
of a step leaves the state as it is; the connection then decides by state and error what the client is sent (AB-38).

    pre_init -- header --> starting -- start-ok --> tuning -- tune-ok --> opening -- open --> running
                              |                       ^
                              +- securing <-> secure-ok
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ...amqp import methods
from ...amqp.connection_state import OPENING, RUNNING, SECURING, TUNING, check_method
from ...amqp.constants import FRAME_MIN_SIZE
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.frames import method_frame
from ...amqp.method import Method
from ...runtime.log_format import one_line
from ...version import __version__
from ..context.node_context import NodeContext
from . import sasl

log = logging.getLogger("warren.connection")

#: Clients decide by product and version which RabbitMQ they are connected to (AB-8).
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

#: The names of warren's own features in `warren_features` of connection.start. A client looks for the name of a feature
#: before it uses the feature, and so needs no list of versions.
WARREN_FEATURES = ("read-blocks", "catalogue", "queue-id", "lives", "arrival", "deduplicate")

#: The two protocol headers that stand for AMQP 0-9-1 (AB-1).
_ACCEPTED_HEADERS = (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")


@dataclass(slots=True)
class Negotiated:
    """What the handshake has settled so far; the connection and its channels read it until they end."""

    client_properties: Table = field(default_factory=Table)
    mechanism: str = ""
    #: Empty until the login has succeeded.
    user: str = ""
    #: 0 is no limit.
    channel_max: int = 0
    #: In bytes; 0 is no limit.
    frame_max: int = FRAME_MIN_SIZE
    #: In seconds; 0 is no heartbeat.
    heartbeat: int = 0
    vhost: str = ""

    def has_capability(self, name: str) -> bool:
        """Whether the client announced this capability as true (AB-10)."""
        capabilities = self.client_properties.get("capabilities")
        if capabilities is None or capabilities[0] != "F":
            return False
        return bool(capabilities[1].get(name) == ("t", True))


class HandshakeStep(NamedTuple):
    """The connection's next state, and the method to send on channel 0; None is no method."""

    state: str
    reply: Method | None = None


@lru_cache(maxsize=16)
def _start_frame(
    mechanisms: tuple[str, ...],
    cluster_name: str,
    configured: tuple[tuple[str, str], ...],
    features: tuple[str, ...],
) -> bytes:
    """The frame of connection.start. It is cached, because encoding it took a tenth of what a connection costs.

    `configured` are server properties, which replace and extend warren's own (AB-7 to AB-9), and `features` the names
    in `warren_features`.
    """
    texts = {
        "product": COMPATIBLE_PRODUCT,
        "version": COMPATIBLE_VERSION,
        "platform": "Python",
        "copyright": "The warren authors",
        "information": "Licensed under the Apache License 2.0",
        "cluster_name": cluster_name,
        "warren_version": __version__,
        **dict(configured),
    }
    capabilities = Table((name, "t", True) for name in CAPABILITIES)
    properties = Table(
        [
            ("capabilities", "F", capabilities),
            ("warren_features", "A", tuple(("S", name.encode()) for name in features)),
            *((name, "S", text.encode("utf-8")) for name, text in texts.items()),
        ]
    )
    return method_frame(0, methods.ConnectionStart(0, 9, properties, " ".join(mechanisms).encode(), b"en_US"))


class Handshake:
    """The handshake of one connection. It records in `Negotiated` what it settles."""

    def __init__(
        self,
        context: NodeContext,
        negotiated: Negotiated,
        connection_name: str,
        peer_host: str,
        mechanisms: tuple[str, ...],
        certified: Callable[[], sasl.Certified],
        is_refused: bool,
        report_login: Callable[[str, str | None], None],
    ) -> None:
        """`certified` returns the user of the client's certificate. `is_refused`: the node has too many connections.

        `report_login` is called with the user of each login, and with the reason if it is refused.
        """
        self._context = context
        self._settings = context.settings
        self._negotiated = negotiated
        self._connection_name = connection_name
        self._peer_host = peer_host
        self._mechanisms = mechanisms
        self._certified = certified
        self._is_refused = is_refused
        self._report_login = report_login
        self._header = b""
        #: Takes the client's answer to a challenge.
        self._proceed: Callable[[bytes], sasl.Credentials] | None = None

    # -- protocol header ---

    @property
    def has_received(self) -> bool:
        """Whether the client has sent a byte; a client that has not is a health check (AB-2)."""
        return bool(self._header)

    def split_header(self, data: bytes) -> tuple[bytes | None, bytes]:
        """Add input; return the protocol header, None while it is incomplete, and the bytes behind it (AB-1)."""
        self._header += data
        if len(self._header) < 8:
            return None, b""
        return self._header[:8], self._header[8:]

    @staticmethod
    def is_accepted(header: bytes) -> bool:
        return header in _ACCEPTED_HEADERS

    def start_frame(self) -> bytes:
        """The frame of connection.start."""
        cluster_name = self._context.definitions.cluster_name(self._settings.cluster_name)
        configured = tuple(self._settings.server_properties.items())
        return _start_frame(self._mechanisms, cluster_name, configured, WARREN_FEATURES)

    # -- methods ---

    def handle(self, state: str, method: Method) -> HandshakeStep:
        """The step for a method on channel 0 in `state`. AmqpError for a method that is not allowed or fails."""
        check_method(state, method)
        if isinstance(method, methods.ConnectionStartOk):
            return self._start_ok(method)
        if isinstance(method, methods.ConnectionSecureOk):
            assert self._proceed is not None
            return self._log_in(self._proceed(method.response))
        if isinstance(method, methods.ConnectionTuneOk):
            return self._tune_ok(method)
        assert isinstance(method, methods.ConnectionOpen)
        return self._open(method)

    def _start_ok(self, method: methods.ConnectionStartOk) -> HandshakeStep:
        self._negotiated.client_properties = method.client_properties
        self._negotiated.mechanism = method.mechanism
        return self._log_in(sasl.begin(method.mechanism, method.response, self._mechanisms, self._certified))

    def _log_in(self, answer: sasl.Answer) -> HandshakeStep:
        if isinstance(answer, sasl.Challenge):
            self._proceed = answer.proceed
            return HandshakeStep(SECURING, methods.ConnectionSecure(answer.text))
        settings = self._settings
        refusal = sasl.verify(answer, self._context.definitions, settings, self._peer_host)
        self._report_login(answer.user, refusal)
        if refusal is not None:
            log.warning("%s refused: %s", self._connection_name, one_line(refusal))
            raise AmqpError(
                403,
                f"Login was refused using authentication mechanism {self._negotiated.mechanism}. "
                "For details see the broker logfile.",
            )
        self._negotiated.user = answer.user
        return HandshakeStep(
            TUNING, methods.ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat)
        )

    def _tune_ok(self, method: methods.ConnectionTuneOk) -> HandshakeStep:
        """Take over the client's values if they are within the server's limits (AB-20, AB-21)."""
        if 0 < method.frame_max < FRAME_MIN_SIZE:
            raise _refused(
                f"negotiated frame_max = {method.frame_max} is lower than the minimum allowed value ({FRAME_MIN_SIZE})"
            )
        _check_limit("frame_max", method.frame_max, self._settings.frame_max)
        _check_limit("channel_max", method.channel_max, self._settings.channel_max)
        self._negotiated.frame_max = method.frame_max
        self._negotiated.channel_max = method.channel_max
        self._negotiated.heartbeat = method.heartbeat
        return HandshakeStep(OPENING)

    def _open(self, method: methods.ConnectionOpen) -> HandshakeStep:
        ids = methods.ConnectionOpen.CLASS_ID, methods.ConnectionOpen.METHOD_ID
        routing, vhost = self._context.routing, method.virtual_host
        if self._is_refused:
            text = f"connection refused: node connection limit ({self._settings.connection_max}) is reached"
            raise AmqpError(530, text, *ids)
        if not routing.has_vhost(vhost):
            raise AmqpError(530, f"vhost {vhost} not found", *ids)
        user, definitions, sessions = self._negotiated.user, self._context.definitions, self._context.sessions
        limit = definitions.vhost_limit(vhost, "max-connections")
        if limit is not None and sessions.count_of_vhost(vhost) >= limit:
            text = f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
            raise AmqpError(530, text, *ids)
        known = definitions.user(user)
        limit = None if known is None else known.limit("max-connections")
        if limit is not None and sessions.count_of_user(user) >= limit:
            text = f"connection refused for user '{user}': user connection limit ({limit}) is reached"
            raise AmqpError(530, text, *ids)
        if definitions.permission(user, vhost) is None:
            raise AmqpError(530, f"access to vhost '{vhost}' refused for user '{user}'", *ids)
        if vhost in routing.down:
            text = f"access to vhost '{vhost}' refused for user '{user}': vhost '{vhost}' is down"
            raise AmqpError(541, text, *ids)
        self._negotiated.vhost = vhost
        return HandshakeStep(RUNNING, methods.ConnectionOpenOk(""))


def _check_limit(name: str, value: int, limit: int) -> None:
    """AmqpError 530 if the client's `value` is above the server's `limit`; 0 is no limit, on both sides."""
    if not limit:
        return
    if value == 0 and name == "channel_max":
        raise _refused(f"negotiated {name} = 0 (no limit) is higher than the maximum allowed value ({limit})")
    if value == 0 or value > limit:
        raise _refused(f"negotiated {name} = {value} is higher than the maximum allowed value ({limit})")


def _refused(text: str) -> AmqpError:
    """The error names the method connection.tune (10/30), although the client's tune-ok failed (AB-20)."""
    return AmqpError(530, text, methods.ConnectionTuneOk.CLASS_ID, methods.ConnectionTune.METHOD_ID)
