"""Login mechanisms as functions (AB-11 to AB-18)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.actors.connection import sasl
from warren.actors.connection.sasl import Certified, Challenge, Credentials
from warren.actors.node.first_user import first_user
from warren.amqp.errors import AmqpError
from warren.amqp.fields import encode_table, table_from
from warren.definitions.definitions import Definitions
from warren.settings import Settings

ALL = ("PLAIN", "AMQPLAIN", "RABBIT-CR-DEMO")
octets = st.binary(max_size=20)
names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)


def begin(mechanism: str, response: bytes):
    return sasl.begin(mechanism, response, ALL, lambda: Certified("guest"))


@given(names, names)
def test_plain(user, password):
    """PLAIN splits the response at its NUL bytes into user and password (AB-11)."""
    assert begin("PLAIN", b"\0" + user.encode() + b"\0" + password.encode()) == Credentials(user, password)


@given(octets)
def test_plain_that_is_anything_else_is_malformed(response):
    """Any other PLAIN response gives the same error, one with an authorisation identity included (AB-11)."""
    parts = response.split(b"\0")
    if len(parts) == 3 and not parts[0]:
        assert isinstance(begin("PLAIN", response), Credentials)
    else:
        with pytest.raises(AmqpError, match="502"):
            begin("PLAIN", response)


def amqplain(**fields) -> bytes:
    return encode_table(table_from(fields))[4:]


@given(names, names)
def test_amqplain(user, password):
    """An AMQPLAIN response is the body of an AMQP table, without its length (AB-12)."""
    try:
        response = amqplain(LOGIN=user, PASSWORD=password)
    except ValueError:
        return  # too long for a table
    assert begin("AMQPLAIN", response) == Credentials(user, password)


@pytest.mark.parametrize(
    "response", [b"", b"\x05LOGIN", amqplain(LOGIN="u"), amqplain(PASSWORD="p"), amqplain(LOGIN=1, PASSWORD="p")]
)
def test_amqplain_that_lacks_something_is_malformed(response):
    with pytest.raises(AmqpError, match="502"):
        begin("AMQPLAIN", response)


@given(octets)
def test_amqplain_survives_any_octets(response):
    try:
        assert isinstance(begin("AMQPLAIN", response), Credentials)
    except AmqpError as error:
        assert error.code == 502


def test_the_demonstration_of_a_challenge():
    """RABBIT-CR-DEMO asks for the password in a second step, and a wrong phrase is answered with 502 (AB-14)."""
    challenge = begin("RABBIT-CR-DEMO", b"guest")
    assert isinstance(challenge, Challenge) and challenge.text == b"Please tell me your password"
    assert challenge.proceed(b"My password is secret") == Credentials("guest", "secret")
    with pytest.raises(AmqpError, match="502"):
        challenge.proceed(b"my password is secret")


@pytest.mark.parametrize(
    "mechanism, word",
    [("EXTERNAL", "invalid"), ("KERBEROS", "unknown"), ("RABBIT-CR-DEMO", "invalid"), ("plain", "unknown")],
)
def test_mechanisms_that_are_not_on_offer(mechanism, word):
    """A mechanism that the broker does not offer is refused with 503 (AB-18)."""
    with pytest.raises(AmqpError) as refused:
        sasl.begin(mechanism, b"\0u\0p", ("PLAIN", "AMQPLAIN"), lambda: Certified("guest"))
    assert (refused.value.code, refused.value.text) == (503, f"{word} authentication mechanism '{mechanism}'")


@given(octets)
def test_external_is_what_the_certificate_says(response):
    """EXTERNAL takes the user's name from the certificate and ignores the response (AB-13)."""
    assert sasl.begin("EXTERNAL", response, ("EXTERNAL",), lambda: Certified("guest")) == Certified("guest")


def verify(credentials, settings, host):
    """The user that logs in with these credentials, or the reason for the refusal, on a node that has only its first
    user.
    """
    definitions = Definitions()
    definitions.put(first_user(settings, b"salt"))
    return sasl.verify(credentials, definitions, settings, host)


@pytest.mark.parametrize(
    ("certified", "host", "reason"),
    [
        (Certified("guest"), "127.0.0.1", None),
        (Certified("guest"), "192.0.2.7", "localhost"),
        (Certified("nobody"), "127.0.0.1", "does not exist"),
        (Certified("", "no certificate"), "127.0.0.1", "no certificate"),
    ],
)
def test_a_certified_user_needs_no_password_but_must_exist(certified, host, reason):
    """EXTERNAL checks no password, but the user must exist and may log in from this host (AB-13, AB-16)."""
    said = verify(certified, Settings(default_pass=""), host)
    assert said is None if reason is None else reason in said


@pytest.mark.parametrize(
    ("user", "password", "host", "reason"),
    [
        ("guest", "guest", "127.0.0.1", None),
        ("guest", "guest", "::1", None),
        ("guest", "guest", "::ffff:127.0.0.1", None),
        ("guest", "guest", "fe80::1%eth0", "localhost"),
        ("guest", "guest", "192.0.2.7", "localhost"),
        ("guest", "wrong", "127.0.0.1", "wrong password"),
        ("guest", "", "127.0.0.1", "wrong password"),
        ("nobody", "guest", "127.0.0.1", "does not exist"),
    ],
)
def test_who_may_log_in_from_where(user, password, host, reason):
    """Another user, a wrong password, and `guest` from another machine are refused (AB-15, AB-16)."""
    said = verify(Credentials(user, password), Settings(), host)
    assert said is None if reason is None else reason in said


def test_an_empty_password_never_passes():
    """AB-17: an empty password is refused even if the configured one is empty."""
    assert verify(Credentials("guest", ""), Settings(default_pass=""), "127.0.0.1") is not None


def test_users_that_are_not_bound_to_this_machine_come_from_anywhere():
    """AB-16: users that are not in `loopback_users` may connect from anywhere."""
    assert verify(Credentials("guest", "guest"), Settings(loopback_users=()), "192.0.2.7") is None
