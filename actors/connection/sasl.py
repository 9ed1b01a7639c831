"""Login mechanisms (AB-11 to AB-18), as functions from the client's response to the user it claims to be.

A mechanism returns `Credentials` or `Certified`, or a `Challenge` if it needs another response. `verify` then decides,
for all mechanisms alike, whether the login is good.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, decode_table
from ...definitions.definitions import Definitions
from ...definitions.passwords import is_password
from ...definitions.records import User
from ...settings import Settings


@dataclass(frozen=True, slots=True)
class Credentials:
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Certified:
    """The user that the client's certificate names; empty if it names none, with the reason for the log as `fault`."""

    user: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The text of a connection.secure; `proceed` takes the client's response to it."""

    text: bytes
    proceed: Callable[[bytes], Credentials]


def plain(response: bytes) -> Credentials:
    """`NUL user NUL password` (AB-11)."""
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise _malformed("PLAIN")
    return Credentials(_text(parts[1]), _text(parts[2]))


def amqplain(response: bytes) -> Credentials:
    """The body of a field table with LOGIN and PASSWORD (AB-12)."""
    try:
        table = decode_table(response)
    except FieldError:
        raise _malformed("AMQPLAIN") from None
    values = []
    for key in ("LOGIN", "PASSWORD"):
        found = table.get(key)
        if found is None or found[0] != "S":
            raise _malformed("AMQPLAIN")
        values.append(_text(found[1]))
    return Credentials(*values)


def cr_demo(response: bytes) -> Challenge:
    """RabbitMQ's demonstration of a challenge (AB-14); offered only when configured."""
    user = _text(response)

    def proceed(answer: bytes) -> Credentials:
        prefix = b"My password is "
        if not answer.startswith(prefix):
            raise _malformed("RABBIT-CR-DEMO")
        return Credentials(user, _text(answer[len(prefix) :]))

    return Challenge(b"Please tell me your password", proceed)


Answer = Credentials | Certified | Challenge

MECHANISMS: dict[str, Callable[[bytes], Credentials | Challenge]] = {
    "PLAIN": plain,
    "AMQPLAIN": amqplain,
    "RABBIT-CR-DEMO": cr_demo,
}


def begin(mechanism: str, response: bytes, enabled: tuple[str, ...], certified: Callable[[], Certified]) -> Answer:
    """The result of the first response. AmqpError 503 for a mechanism that is unknown or not enabled (AB-18).

    EXTERNAL ignores the response and uses `certified`, which returns the user of the client's certificate (AB-13).
    """
    if mechanism not in MECHANISMS and mechanism != "EXTERNAL":
        raise AmqpError(503, f"unknown authentication mechanism '{mechanism}'")
    if mechanism not in enabled:
        raise AmqpError(503, f"invalid authentication mechanism '{mechanism}'")
    return certified() if mechanism == "EXTERNAL" else MECHANISMS[mechanism](response)


def verify(
    credentials: Credentials | Certified, definitions: Definitions, settings: Settings, peer_host: str
) -> str | None:
    """None if the login is good, else the reason, for the log only: the client is not sent it (AB-15 to AB-17)."""
    user = definitions.user(credentials.user)
    if isinstance(credentials, Certified):
        if credentials.fault:
            return credentials.fault
        is_right = True
    else:
        # For an unknown user the hash is computed too, so that the time does not reveal which users exist.
        known = user or NOBODY
        is_right = is_password(credentials.password, known.password_hash, known.hashing_algorithm)
    if user is None:
        return f"user '{credentials.user}' does not exist"
    if not is_right:
        return f"user '{credentials.user}' gave a wrong password"
    if credentials.user in settings.loopback_users and not _is_loopback(peer_host):
        return f"user '{credentials.user}' can only connect via localhost"
    return None


#: Stands for a user who does not exist. No password has a hash of zeros only.
NOBODY = User("", base64.b64encode(bytes(36)).decode())


def _is_loopback(host: str) -> bool:
    address = ip_address(host.split("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _malformed(mechanism: str) -> AmqpError:
    return AmqpError(502, f"malformed {mechanism} response")
