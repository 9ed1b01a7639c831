"""`TlsConnection`: a `Connection` whose socket speaks TLS.

    accepted ── TLS handshake, at most ssl_handshake_timeout ──> pre_init, as any connection
        └── it fails, or the time is over: one line in the log, and the socket is closed

It differs from its base in the transport only, and in what follows from it: the handshake in front, writing that TLS wants for itself, an end of input that the
socket does not show, and a certificate to log in with (AB-13).
"""

from __future__ import annotations

import logging
import ssl
from typing import Any

from ..node.context import NodeContext
from .log_text import one_line
from .output import Transport
from .process import Connection
from .sasl import Certified
from .tls_context import distinguished_name, user_name
from .tls_transport import TlsTransport

log = logging.getLogger("warren.connection")

_EXPLAINED = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS; is it meant for the port without?",
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "it offers no TLS version from 1.2 up",
    "NO_SHARED_CIPHER": "it offers no cipher that the broker has",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and tls_verify is 'required'",
}


class TlsConnection(Connection):
    """Its `start` has one more field, the listener's SSLContext: as little as the descriptor beside it would it mean anything in another process of the operating system."""

    tls: TlsTransport

    def on_start(
        self,
        sender: Any,
        context: NodeContext,
        fd: int,
        peer: tuple,
        local: tuple,
        is_refused: bool = False,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        assert tls_context is not None
        self.tls_context = tls_context
        super().on_start(sender, context, fd, peer, local, is_refused)
        self.start_timer(self.settings.ssl_handshake_timeout / 1000, "tls handshake")

    def open_transport(self, sock: Transport) -> TlsTransport:
        self.tls = TlsTransport(sock, self.tls_context)
        return self.tls

    # -- the handshake -----------------------------------------------------------------------------------------------------------------------

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
        if self.tls.heard_anything:
            log.warning("%s: no TLS: %s", self.name, one_line(reason))
            self.closing.hang_up()
        else:
            self.closing.lost(reason)  # a health check (AB-2)

    def on_timer(self, payload: str) -> None:
        if payload != "tls handshake":
            super().on_timer(payload)
        elif self.sock is not None and not self.tls.is_ready:
            log.warning(
                "%s: no TLS: the handshake took longer than %d ms", self.name, self.settings.ssl_handshake_timeout
            )
            self.closing.hang_up()

    # -- what the transport wants --------------------------------------------------------------------------------------------------------------

    def _go_on_reading(self) -> None:
        super()._go_on_reading()
        self._notice_end()

    def _notice_end(self) -> None:
        # After close_notify the client may keep the TCP connection open, so no descriptor will tell of the end.
        if (
            self.tls.is_ended
            and self.sock is not None
            and not self.pauses
            and self.state != "blocked"
            and not self.closing.deaf
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

    def is_write_due(self) -> bool:
        return self.output.size > 0 or self.tls.has_unsent

    # -- who the client is -----------------------------------------------------------------------------------------------------------------------

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.settings.auth_mechanisms

    def certified(self) -> Certified:
        """The user of the client's certificate, or why there is none."""
        certificate = self.tls.certificate
        if not certificate:
            return Certified("", "the client showed no certificate")
        source = self.settings.ssl_cert_login_from
        name = user_name(certificate, source)
        return Certified(name) if name else Certified("", f"the client's certificate has no {source.replace('_', ' ')}")

    def on_info(self, sender: Any) -> dict[str, Any]:
        return {
            **super().on_info(sender),
            "ssl": True,
            "ssl_protocol": self.tls.protocol,
            "ssl_cipher": self.tls.cipher,
            "peer_cert_subject": distinguished_name(self.tls.certificate) if self.tls.is_ready else "",
        }


def _explain(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _EXPLAINED.get(error.reason, error.reason.lower().replace("_", " "))
    return error.strerror or str(error)
