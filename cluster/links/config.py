"""`LinkConfig`: what all links of a node have in common, and the shared secret."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from ...actors.connection.tls.tls_context import KeyIsEncrypted, refuse_password
from ...actors.control.proof import SECRET_MIN, SecretError, make_secret
from ...runtime.errors import ProcessError
from ...settings import Settings
from .encoding.registry import BULK, CONTROL, DATA, Registry
from .greeting import derived_key

#: The file of the shared secret if neither `cluster_cookie` nor `cluster_cookie_file` is set.
DEFAULT_COOKIE_FILE = "~/.warren.cookie"

#: The environment variable with the shared secret. It takes precedence over the file; `cluster_cookie` does over both.
COOKIE_VARIABLE = "WARREN_COOKIE"


class LinksError(ProcessError):
    """This node cannot link to others. The text has the reason and the way out."""


class LinkConfig(NamedTuple):
    """The key of the greetings, what may cross, and how much a lane holds for a node that is behind with the log.

    With TLS contexts both sides of a connection show certificates of the same authorities.
    """

    key: bytes
    registry: Registry
    windows: dict[str, int]
    #: Seconds without a sign of life after which a node counts as lost.
    ticktime: float = 2.0
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, settings: Settings, registry: Registry) -> LinkConfig:
        """Read the secret and the TLS files. Waits for the disk. Raises LinksError if one of them cannot be used."""
        windows = {
            CONTROL: settings.link_control_window,
            DATA: settings.link_data_window,
            BULK: settings.link_bulk_window,
        }
        contexts = [tls_context(settings, is_client) for is_client in (False, True)]
        return cls(derived_key(shared_secret(settings)), registry, windows, settings.net_ticktime, *contexts)


def shared_secret(settings: Settings) -> bytes:
    """The secret that all nodes of the cluster share. If none exists yet, one is written to a new file (CL-7, CL-124).

    Raises LinksError if the secret is too short or its file cannot be used.
    """
    for name, given in (("setting 'cluster_cookie'", settings.cluster_cookie), (COOKIE_VARIABLE, _environment())):
        if given:
            secret = given.encode("utf-8", "surrogateescape")
            if len(secret) < SECRET_MIN:
                raise LinksError(f"{name} has {len(secret)} bytes; a shared secret has at least {SECRET_MIN}")
            return secret
    path = Path(settings.cluster_cookie_file or DEFAULT_COOKIE_FILE).expanduser()
    try:
        return make_secret(str(path))
    except SecretError as error:
        raise LinksError(f"setting 'cluster_cookie_file': {error}") from None


def tls_context(settings: Settings, is_client: bool) -> ssl.SSLContext | None:
    """One side's TLS context; None without `cluster_tls_*`. Both sides must have a certificate of the authorities.

    Raises LinksError for a file that cannot be used. Names in certificates are not compared with hosts: the secret says
    who belongs to the cluster, and a node may be reached at any address.
    """
    certificate = settings.cluster_tls_cert_file
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_client else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    key = "cluster_tls_cert_file"
    try:
        context.load_cert_chain(certificate, settings.cluster_tls_key_file, password=refuse_password)
        key = "cluster_tls_ca_file"
        context.load_verify_locations(settings.cluster_tls_ca_file)
    except (OSError, KeyIsEncrypted) as error:
        reason = "its key is encrypted" if isinstance(error, KeyIsEncrypted) else error.strerror or str(error)
        raise LinksError(
            f"setting '{key}': the file cannot be used ({reason}); give PEM files that the node may read: "
            "cluster_tls_cert_file, its key in cluster_tls_key_file, and the authorities in cluster_tls_ca_file"
        ) from None
    return context


def _environment() -> str:
    return os.environ.get(COOKIE_VARIABLE, "").strip()
