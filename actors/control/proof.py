"""Proof that both ends of a control connection know the same secret, which is never sent.

Each end sends 32 random bytes as its challenge. The answer is an HMAC-SHA256 under the secret of the answering end's
role and both challenges. So a recorded proof is useless later, and a node's proof cannot be sent back to it as a
client's. The secret protects the login only: what follows is neither encrypted nor signed, so a network that others can
change needs a tunnel.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from typing import Literal

CHALLENGE_BYTES = 32

#: Bytes that a secret has at least; a shorter one could be guessed from one recorded proof.
SECRET_MIN = 16

Role = Literal["client", "node"]


class SecretError(Exception):
    """A file with a secret that cannot be used. The text names the file, the reason and the way out."""


def proof(secret: bytes, role: Role, node_challenge: bytes, client_challenge: bytes) -> bytes:
    """What the end with this role sends to prove that it knows the secret."""
    message = b"\0".join((b"warren control 1", role.encode("ascii"), node_challenge.hex().encode("ascii")))
    return hmac.digest(secret, message + b"\0" + client_challenge.hex().encode("ascii"), "sha256")


def is_proof(given: object, secret: bytes, role: Role, node_challenge: bytes, client_challenge: bytes) -> bool:
    """Whether the peer with this role sent the right proof; compared in constant time."""
    wanted = proof(secret, role, node_challenge, client_challenge)
    return isinstance(given, bytes) and hmac.compare_digest(given, wanted)


def read_secret(path: str) -> bytes:
    """The secret in a file that nobody but its owner can read. Raises SecretError."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(4096).strip()
    except OSError as error:
        raise SecretError(f"the secret in '{path}' cannot be read: {error.strerror}") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise SecretError(f"'{path}' must be readable by its owner only, or others know the secret: chmod 400 '{path}'")
    if len(secret) < SECRET_MIN:
        raise SecretError(f"the secret in '{path}' has {len(secret)} bytes; at least {SECRET_MIN} are needed")
    return secret


def make_secret(path: str) -> bytes:
    """The secret in the file `path`; if there is no such file, a new secret in a new file. Raises SecretError."""
    if not os.path.exists(path):
        try:
            _create(path)
        except FileExistsError:
            pass  # another node was quicker
        except OSError as error:
            raise SecretError(f"the secret cannot be written to '{path}': {error.strerror}") from None
    return read_secret(path)


def _create(path: str) -> None:
    """Create the file in one step: nodes that start at once share it, and must not read half of it. Raises OSError."""
    making = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    if os.name == "nt":
        os.rename(making, path)  # on Windows this replaces no existing file
        return
    try:
        os.link(making, path)
    finally:
        os.unlink(making)
