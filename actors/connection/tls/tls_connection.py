"""`TlsConnection`: a `Connection` over TLS.

    accepted ── TLS handshake, at most ssl_handshake_timeout ──> pre_init, as any connection
        └── it fails, or takes too long: one line in the log, and the socket is closed

It differs from its base in the transport, and in what follows from that: the TLS handshake comes first, TLS itself has
bytes to write, the end of the input may not show on the socket, and the client may log in with a certificate (AB-13).
"""

from __future__ import annotations

import logging
import ssl

from ....runtime.contract import Sender
from ....runtime.log_format import one_line
from ...context.node_context import NodeContext
from ...contracts.connection import SocketAddress
from ...contracts.info_items import InfoItems
from ..output import Transport
from ..process import Connection
from ..sasl import Certified
from .tls_context import certificate_items, user_name
from .tls_transport import TlsTransport

log = logging.getLogger("warren.connection")

#: Why a TLS handshake failed, by OpenSSL's reason.
_EXPLAINED = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; it may be meant for the port without TLS",
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "the client offers no TLS version from 1.2 up",
    "NO_SHARED_CIPHER": "the client offers no cipher that the broker has",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and tls_verify is 'required'",
}

TLS_HANDSHAKE_TIMEOUT = "tls handshake"


class TlsConnection(Connection):
    tls: TlsTransport

    def on_start(
        self,
        sender: Sender,
        context: NodeContext,
        fd: int,
        peer: SocketAddress,
        local: SocketAddress,
        is_refused: bool = False,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        super().on_start(sender, context, fd, peer, local, is_refused, tls_context)
        self.start_timer(self.settings.ssl_handshake_timeout / 1000, TLS_HANDSHAKE_TIMEOUT)

    def open_transport(self, sock: Transport, tls_context: ssl.SSLContext | None) -> TlsTransport:
        assert tls_context is not None
        self.tls = TlsTransport(sock, tls_context)
        return self.tls

    # -- the TLS handshake ---

    def on_readable(self, fd: int) -> None:
        if not self.tls.is_ready:
            try:
                if not self.tls.handshake():
                    self.refresh_watch()
                    return
            except OSError as error:
                self._handshake_failed(_explain(error))
                return
            self.refresh_watch()
        super().on_readable(fd)
        self._notice_end()

    def _handshake_failed(self, reason: str) -> None:
        if self.tls.has_received:
            log.warning("%s: no TLS: %s", self.name, one_line(reason))
            self.closing.hang_up()
        else:
            self.closing.lost(reason)  # a health check (AB-2)

    def on_timer(self, payload: str) -> None:
        if payload != TLS_HANDSHAKE_TIMEOUT:
            super().on_timer(payload)
        elif self.sock is not None and not self.tls.is_ready:
            log.warning(
                "%s: no TLS: the handshake took longer than %d ms", self.name, self.settings.ssl_handshake_timeout
            )
            self.closing.hang_up()

    # -- reading and writing ---

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._notice_end()

    def _notice_end(self) -> None:
        # After close_notify the client may keep the TCP connection open: the socket does not become readable then.
        if (
            self.tls.is_ended
            and self.sock is not None
            and not self.pauses
            and self.state != "blocked"
            and not self.closing.ignores_input
        ):
            self.closing.lost("the client closed the TLS connection")

    def after_batch(self) -> None:
        super().after_batch()
        if self.sock is None or self.output.size:
            return
        if self.tls.has_unsent:
            try:
                self.tls.flush()
            except OSError as error:
                self.closing.lost(error.strerror or str(error))
                return
        if self.tls.has_unsent != self.watching[1]:
            self.refresh_watch()

    def has_unsent(self) -> bool:
        return self.output.size > 0 or self.tls.has_unsent

    # -- login by certificate ---

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.settings.auth_mechanisms

    def certified(self) -> Certified:
        certificate = self.tls.certificate
        if not certificate:
            return Certified("", "the client showed no certificate")
        source = self.settings.ssl_cert_login_from
        name = user_name(certificate, source)
        return Certified(name) if name else Certified("", f"the client's certificate has no {source.replace('_', ' ')}")

    def on_info(self, sender: Sender) -> InfoItems:
        return {
            **super().on_info(sender),
            "ssl": True,
            "ssl_protocol": self.tls.protocol,
            "ssl_cipher": self.tls.cipher,
            **(certificate_items(self.tls.certificate) if self.tls.is_ready and self.tls.certificate else {}),
        }


def _explain(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _EXPLAINED.get(error.reason, error.reason.lower().replace("_", " "))
    return error.strerror or str(error)
