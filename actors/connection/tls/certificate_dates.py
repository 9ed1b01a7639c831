"""When the certificates in a PEM file expire. Python's ssl reads that only from a certificate that a peer has shown.

A certificate in DER (RFC 5280) is nested values of a tag, a length and contents:

    SEQUENCE { SEQUENCE { [0] version, serial number, signature, issuer, SEQUENCE { not before, not after }, ... } ... }

The times are UTCTime (`YYMMDDHHMMSSZ`, years from 1950 to 2049) or GeneralizedTime (`YYYYMMDDHHMMSSZ`).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

#: A certificate in a PEM file.
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18


def ends_of(pem: str) -> list[datetime]:
    """When each certificate in the text of a PEM file expires. Raises ValueError if one is malformed."""
    return [_end(ssl.PEM_cert_to_DER_cert(text)) for text in _PEM.findall(pem)]


def _end(der: bytes) -> datetime:
    try:
        [(_, certificate)] = _values(der)
        _, signed = next(_values(certificate))
        # The version is left out of certificates of version 1.
        fields = [contents for tag, contents in _values(signed) if tag != _VERSION]
        _, (tag, text) = _values(fields[3])
    except (IndexError, StopIteration):
        raise ValueError("a certificate in the file is cut short") from None
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"the expiry of a certificate has the ASN.1 tag {tag}, which is not that of a time")
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the contents of each value."""
    place = 0
    while place < len(data):
        tag, length, place = data[place], data[place + 1], place + 2
        if length & 0x80:
            size = length & 0x7F
            length, place = int.from_bytes(data[place : place + size]), place + size
        if place + length > len(data):
            raise IndexError(place)
        yield tag, data[place : place + length]
        place += length
