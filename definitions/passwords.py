"""Password hashes in RabbitMQ's formats: base64 of 4 random bytes, the salt, and of the hash of salt and password."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

from .errors import DefinitionError

SHA256 = "rabbit_password_hashing_sha256"

SALT_BYTES = 4

_ALGORITHMS: dict[str, Callable[[bytes], Any]] = {
    SHA256: hashlib.sha256,
    "rabbit_password_hashing_sha512": hashlib.sha512,
    # What RabbitMQ used before version 3.6; such hashes are still imported.
    "rabbit_password_hashing_md5": lambda data: hashlib.md5(data, usedforsecurity=False),
}


def hashed(password: str, salt: bytes) -> str:
    """The hash to keep of a password, by `SHA256`; `salt` has 4 unpredictable bytes."""
    digest = hashlib.sha256(salt + _bytes(password)).digest()
    return base64.b64encode(salt + digest).decode()


def check_hash(password_hash: str, algorithm: str) -> None:
    """Raise DefinitionError for a hash that no password could have; an empty one is that of no password."""
    digest = _ALGORITHMS.get(algorithm)
    if digest is None:
        raise DefinitionError("data", f"unknown hashing algorithm '{algorithm}'; known are {', '.join(_ALGORITHMS)}")
    size = SALT_BYTES + digest(b"").digest_size
    if password_hash and len(_decoded(password_hash)) != size:
        # The hash itself is a secret, so the text does not have it.
        raise DefinitionError("data", f"the password hash is not one of {algorithm}: that is {size} bytes, in base64")


def is_password(password: str, password_hash: str, algorithm: str) -> bool:
    """Whether this is the password. The empty password is never right (AB-15)."""
    stored = _decoded(password_hash)
    digest = _ALGORITHMS.get(algorithm)
    if digest is None or not password or not stored:
        return False
    return hmac.compare_digest(digest(stored[:SALT_BYTES] + _bytes(password)).digest(), stored[SALT_BYTES:])


def _decoded(password_hash: str) -> bytes:
    try:
        return base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")
