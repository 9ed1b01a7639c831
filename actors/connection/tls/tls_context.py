"""The TLS side of a node: the context of its listener, and the user in a client's certificate (AB-13).

    server_context(settings)                 the `ssl.SSLContext` of a listener; TlsError for files that cannot be used
    user_name(certificate, login_from)       the user that a certificate names, or None

Versions below TLS 1.2 are refused. Renegotiation is refused because a client could make the broker negotiate for ever.
Session tickets are off: connections to a broker live long, so tickets would save little, and without them a client has
to show its certificate each time it connects.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any

from ....runtime.errors import ProcessError
from ....settings import Settings

VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

#: A certificate as `ssl.SSLObject.getpeercert` returns it.
Certificate = Mapping[str, Any]

#: Short attribute names of RFC 4514 section 3, and those that RabbitMQ adds; other attributes keep their OpenSSL name.
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "dnQualifier": "dnQualifier",
    "givenName": "GN",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "surname": "SN",
    "userId": "UID",
}


class TlsError(ProcessError):
    """A certificate, key or authority file cannot be used. The text names the setting, the reason and the way out."""


class KeyIsEncrypted(Exception):
    """OpenSSL asked for the password of a key."""


def server_context(settings: Settings) -> ssl.SSLContext:
    """The TLS context of a listener, from the settings `tls_*`. Waits for the disk. TlsError for an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # OP_NO_TICKET does not cover TLS 1.3
    assert settings.tls_cert_file is not None  # `Settings` requires it with tls_port
    _load_certificate(context, settings.tls_cert_file, settings.tls_key_file)
    if settings.tls_ca_file is not None:
        _check_readable("tls_ca_file", settings.tls_ca_file)
        try:
            context.load_verify_locations(settings.tls_ca_file)
        except ssl.SSLError as error:
            raise _wrong(
                "tls_ca_file",
                settings.tls_ca_file,
                f"holds no certificates ({_reason(error)}); give those of the authorities in PEM format",
            ) from None
    context.verify_mode = VERIFY_MODES[settings.tls_verify]
    return context


def _load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
    _check_readable("tls_cert_file", cert_file)
    if key_file is not None:
        _check_readable("tls_key_file", key_file)
    key = ("tls_cert_file", cert_file) if key_file is None else ("tls_key_file", key_file)
    try:
        context.load_cert_chain(cert_file, key_file, password=refuse_password)
    except KeyIsEncrypted:
        raise _wrong(
            *key,
            "holds an encrypted key, which the broker cannot open; "
            "`openssl pkey -in ... -out ...` writes it without a password",
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _wrong(
                *key,
                f"is not the key of the certificate in tls_cert_file {cert_file!r}; give a key and its own certificate",
            ) from None
        # The error does not name the file at fault, so look into both.
        if not _holds(cert_file, b"-----BEGIN CERTIFICATE-----"):
            raise _wrong(
                "tls_cert_file",
                cert_file,
                "holds no certificate; give one in PEM format, followed by those of intermediate authorities",
            ) from None
        if not _holds(key[1], b"PRIVATE KEY-----"):
            way_out = "set tls_key_file" if key_file is None else "give one in PEM format"
            raise _wrong(*key, f"holds no private key; {way_out}") from None
        raise _wrong(
            "tls_cert_file",
            cert_file,
            f"cannot be used with its key ({_reason(error)}); are both whole and in PEM format?",
        ) from None


def _check_readable(key: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise _wrong(
            key, path, f"cannot be read: {error.strerror}; give a file that the broker's user may read"
        ) from None


def _holds(path: str, mark: bytes) -> bool:
    with open(path, "rb") as file:
        return mark in file.read()


def refuse_password() -> bytes:
    """Raises KeyIsEncrypted. Without it OpenSSL would ask on the terminal, and the node would wait for ever."""
    raise KeyIsEncrypted


def _wrong(key: str, path: str, text: str) -> TlsError:
    return TlsError(f"setting '{key}' is {path!r}: it {text}")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


# -- names in certificates ---


def user_name(certificate: Certificate, login_from: str) -> str | None:
    """The user that a client's certificate names, None if it has no name of that kind.

    `login_from` is the setting `ssl_cert_login_from`. As in RabbitMQ, several common names are joined by commas, and of
    the alternative names the first DNS name counts.
    """
    if login_from == "common_name":
        return (
            ",".join(value for rdn in certificate.get("subject", ()) for name, value in rdn if name == "commonName")
            or None
        )
    if login_from == "subject_alternative_name":
        return next((value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS" and value), None)
    return distinguished_name(certificate) or None


def distinguished_name(certificate: Certificate, whose: str = "subject") -> str:
    """The `subject` or the `issuer` as RFC 4514 writes it, the most specific part first: `CN=guest,O=Team A,C=CH`."""
    parts = (
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in rdn)
        for rdn in certificate.get(whose, ())
    )
    return ",".join(reversed(list(parts)))


def certificate_items(certificate: Certificate) -> dict[str, str]:
    """The info items of a client's certificate, for listings."""
    return {
        "peer_cert_subject": distinguished_name(certificate),
        "peer_cert_issuer": distinguished_name(certificate, "issuer"),
        "peer_cert_validity": f"{_moment(certificate['notBefore'])} - {_moment(certificate['notAfter'])}",
    }


def _moment(text: str) -> str:
    """`2026-11-22T21:42:07Z`, from the text that Python's ssl has."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ssl.cert_time_to_seconds(text)))


def _escaped(value: str) -> str:
    """`value` with the escapes that RFC 4514 section 2.4 requires."""
    text = "".join("\\" + char if char in '"+,;<>\\' else "\\00" if char == "\0" else char for char in value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if value.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text
