"""SASL and its refusals (AB-10 to AB-18)."""

from __future__ import annotations

import socket
import time

import pytest

from warren.amqp.fields import encode_table, table_from
from warren.amqp.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionTune,
    ConnectionTuneOk,
)

from ..wire import CAPABILITIES, PLAIN, SLOW_DROP, Wire, assert_reply

WRONG_PASSWORD = b"\0guest\0wrong"
REFUSED_PLAIN = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
)


def amqplain(**fields) -> bytes:
    """The response of AMQPLAIN: a table without its length."""
    return encode_table(table_from(fields))[4:]


MALFORMED = {
    "an authorisation identity": ("PLAIN", b"someone\0guest\0guest"),
    "no password": ("PLAIN", b"\0guest"),
    "something after the password": ("PLAIN", b"\0guest\0guest\0"),
    "an empty response": ("PLAIN", b""),
    "no PASSWORD": ("AMQPLAIN", amqplain(LOGIN="guest")),
    "a LOGIN that is no string": ("AMQPLAIN", amqplain(LOGIN=5, PASSWORD="guest")),
    "a table cut short": ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="guest")[:-3]),
    "an unknown mechanism": ("KERBEROS_V9", PLAIN),
    "a mechanism that is not enabled": ("RABBIT-CR-DEMO", b"guest"),
    "a mechanism in lower case": ("plain", PLAIN),
}


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", PLAIN),
        ("AMQPLAIN", amqplain(LOGIN="guest", PASSWORD="guest")),
        ("AMQPLAIN", amqplain(PASSWORD="guest", X=1, LOGIN="guest")),
    ],
)
def test_a_good_login_leads_to_tune(address, mechanism, response):
    """A valid response of each mechanism gets connection.tune with the broker's limits (AB-11, AB-12, AB-19)."""
    wire, tune = Wire.tuning(address, mechanism=mechanism, response=response)
    with wire:
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (WRONG_PASSWORD, "wrong password"),
        (b"\0nobody\0guest", "unknown user"),
        (b"\0guest\0", "empty password"),
        (b"\0\0guest", "empty user"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_login_is_told_to_clients_that_can_hear_it(address, witness, response, why):
    """A refused login gets 403 if the client has the capability for it, with the same text for every reason, and with
    class and method 0 (AB-15, AB-17).
    """
    with Wire.started(address) as wire:
        wire.send_start_ok(response=response)
        wire.expect_close(403, REFUSED_PLAIN)
    witness.check()


def test_a_refused_amqplain_login_names_its_mechanism(address):
    """The 403 text of a refused login names the mechanism AMQPLAIN (AB-17)."""
    with Wire.started(address) as wire:
        wire.send_start_ok(mechanism="AMQPLAIN", response=amqplain(LOGIN="guest", PASSWORD="no"))
        wire.expect_close(403, REFUSED_PLAIN.replace("PLAIN", "AMQPLAIN"))


def test_logins_that_get_no_answer_are_dropped_after_three_seconds(address, witness):
    """AB-17, AB-18, AB-38: 3 s of silence, then the socket is closed. With the capability, a well-formed login that is
    refused is answered instead.

    One test for all cases, so that they wait at the same time.
    """
    waiting = []  # the case, its connection, and a moment before the silence began
    for case, (mechanism, response) in MALFORMED.items():
        wire = Wire.started(address)
        waiting.append((case, wire, time.monotonic()))
        wire.send_start_ok(mechanism=mechanism, response=response)
    for capabilities in (
        {},
        {**CAPABILITIES, "authentication_failure_close": False},
        {"authentication_failure_close": "true"},
    ):
        wire = Wire.started(address)
        waiting.append((f"refused, with capabilities {capabilities}", wire, time.monotonic()))
        wire.send_start_ok(response=WRONG_PASSWORD, capabilities=capabilities)
    mute = Wire.started(address)
    waiting.append(("refused with connection.close, which the client does not answer", mute, time.monotonic()))
    mute.send_start_ok(response=WRONG_PASSWORD)
    assert_reply(mute.method(0, ConnectionClose), 403, REFUSED_PLAIN, (0, 0))
    all_sent = time.monotonic()
    witness.check()
    for case, wire, began in waiting:
        with wire:
            wire.expect_hang_up()
        assert time.monotonic() - began > SLOW_DROP - 0.5, case
    assert time.monotonic() - all_sent < SLOW_DROP + 2


def test_a_challenge_is_answered_with_secure_ok(start_broker):
    """A mechanism with a challenge sends connection.secure, and the right secure-ok gets connection.tune (AB-14)."""
    address = start_broker(auth_mechanisms=("RABBIT-CR-DEMO",)).address
    with Wire.started(address) as wire:
        wire.send_start_ok(mechanism="RABBIT-CR-DEMO", response=b"guest")
        assert wire.method(0, ConnectionSecure).challenge == b"Please tell me your password"
        wire.send_method(0, ConnectionSecureOk(b"My password is guest"))
        wire.method(0, ConnectionTune)


def test_a_refused_challenge_is_told_like_a_refused_response(start_broker):
    """A wrong secure-ok gets the same 403 as a wrong response in start-ok (AB-14, AB-17)."""
    address = start_broker(auth_mechanisms=("PLAIN", "RABBIT-CR-DEMO")).address
    with Wire.started(address) as wire:
        wire.send_start_ok(mechanism="RABBIT-CR-DEMO", response=b"guest")
        wire.method(0, ConnectionSecure)
        wire.send_method(0, ConnectionSecureOk(b"My password is wrong"))
        wire.expect_close(403, REFUSED_PLAIN.replace("PLAIN", "RABBIT-CR-DEMO"))


def test_a_loopback_user_from_elsewhere_is_refused_like_a_wrong_password(start_broker):
    """A user who may only come from the loopback interface is refused elsewhere as for a wrong password (AB-16). This
    needs an address of this machine that is not a loopback address.
    """
    outside = _address_of_this_machine()
    if outside is None:
        pytest.skip("this machine has no address but loopback")
    target = start_broker(host="0.0.0.0")
    with Wire.started((outside, target.address[1])) as wire:
        wire.send_start_ok()
        wire.expect_close(403, REFUSED_PLAIN)
    target = start_broker(host="0.0.0.0", loopback_users=())
    Wire.open((outside, target.address[1])).close()


def test_another_default_user_may_be_configured(start_broker):
    """Another default user may be configured, and then guest does not exist (AB-15)."""
    address = start_broker(default_user="kim", default_pass="pä:ss").address
    Wire.open(address, response="\0kim\0pä:ss".encode()).close()
    with Wire.started(address) as wire:
        wire.send_start_ok()
        wire.expect_close(403, REFUSED_PLAIN)


def test_close_ok_of_a_refused_client_ends_the_wait(address):
    """When a refused client sends close-ok, its connection ends at once and not after 3 s (AB-17)."""
    took = []
    for _ in range(3):  # if the machine is too busy at one time, it may not be at the next
        with Wire.started(address) as wire:
            wire.send_start_ok(response=WRONG_PASSWORD)
            wire.method(0, ConnectionClose)
            began = time.monotonic()
            wire.send_method(0, ConnectionCloseOk())
            wire.expect_hang_up()
            took.append(time.monotonic() - began)
        if took[-1] < 1.5:
            break
    assert min(took) < 1.5


def test_locale_and_capabilities_of_any_sort_are_accepted(address):
    """The locale of start-ok is ignored, and so are capabilities that are not a table (AB-7, AB-10)."""
    wire, _ = Wire.tuning(address, capabilities="none")
    wire.hang_up()
    with Wire.open(address, capabilities=[1, 2], nested={"a": {"b": [1, None]}}) as wire:
        wire.close()


def test_open_may_be_pipelined_after_start_ok(address):
    """A client may send its whole handshake at once, without waiting for any answer."""
    with Wire.started(address) as wire:
        wire.send_start_ok()
        wire.send_method(0, ConnectionTuneOk(2047, 131072, 0))
        wire.send_method(0, ConnectionOpen("/"))
        wire.method(0, ConnectionTune)
        wire.method(0, ConnectionOpenOk)


def _address_of_this_machine() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # 192.0.2.1 is an address for documentation, and nothing is sent to it
        except OSError:
            return None
        found = sock.getsockname()[0]
    return None if found.startswith("127.") else found
