"""Password hashes: those of RabbitMQ 3.10.8 can be used unchanged."""

from __future__ import annotations

import base64
import hashlib

import pytest

from warren.definitions.errors import DefinitionError
from warren.definitions.password_rules import check_password
from warren.definitions.passwords import SHA256, check_hash, hashed, is_password


def test_the_hash_of_the_documentation_of_rabbitmq():
    """The hash that RabbitMQ's documentation computes verifies (CM-90): password test12, salt 908D C60A."""
    stored = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert hashed("test12", bytes.fromhex("908DC60A")) == stored
    assert is_password("test12", stored, SHA256)
    assert not is_password("test13", stored, SHA256)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_each_algorithm_verifies_its_own_hashes(algorithm):
    """Each algorithm verifies the hashes that it makes, and no other password (CM-90)."""
    name = f"rabbit_password_hashing_{algorithm}"
    stored = base64.b64encode(b"salt" + hashlib.new(algorithm, b"saltp\xc3\xa4ss").digest()).decode()
    check_hash(stored, name)
    assert is_password("päss", stored, name)
    assert not is_password("pass", stored, name)


def test_the_empty_password_is_never_right():
    assert not is_password("", hashed("", b"salt"), SHA256)
    assert not is_password("", "", SHA256)
    assert not is_password("x", "", SHA256)


@pytest.mark.parametrize(("stored", "algorithm"), [("!!", SHA256), ("YWJj", SHA256), ("", "rot13")])
def test_a_hash_that_no_password_has_is_refused_without_showing_it(stored, algorithm):
    with pytest.raises(DefinitionError) as refusal:
        check_hash(stored, algorithm)
    assert not stored or stored not in refusal.value.text


@pytest.mark.parametrize(
    ("password", "min_length", "pattern"),
    [("", 0, ""), ("guest", 5, ""), ("päss", 4, ""), ("abc1", 0, "[0-9]"), ("abc1", 4, "^[a-z]+[0-9]$")],
)
def test_a_password_that_the_validators_accept(password, min_length, pattern):
    """Validators accept a password by its length in characters, not bytes, and by a pattern (AB-167)."""
    check_password(password, min_length, pattern)


@pytest.mark.parametrize(
    ("password", "min_length", "pattern", "text"),
    [
        ("gues", 5, "", "minimum required password length is 5"),
        ("letters", 5, "[0-9]", "provided password does not match the validator regular expression"),
        (
            "x" * 200 + "b",
            0,
            "(?P<c>x+)+(?P=c)!",
            "the setting 'credential_validator_regexp' takes too long on the provided ",
        ),
    ],
)
def test_a_password_that_a_validator_refuses_is_not_in_its_text(caplog, password, min_length, pattern, text):
    """A refused password is not in the error, which has RabbitMQ's text, nor in the log, whatever the pattern does
    (AB-167).
    """
    with pytest.raises(DefinitionError) as refusal:
        check_password(password, min_length, pattern)
    assert refusal.value.text.startswith(text) and password not in refusal.value.text + caplog.text
