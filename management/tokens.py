"""`Tokens`: users who log in with a token of an OAuth 2 provider (CM-226).

A token is a JSON Web Token that the provider has signed. It proves who its bearer is, and nothing else: the claim
`management_oauth_user_claim` names a user of the broker, and tags and permissions are those of that user. This is what
RabbitMQ calls `authn = oauth2, authz = internal`. So an operator who deletes a user or takes a tag away does not wait
until tokens have expired.

The keys of the provider (JWKS) are at an address or in a file. They are read when a token needs them, again when a
token names a key that they lack, and at the latest after `KEPT` seconds. A key that nobody has must not make this
process ask the provider for each request, so it asks at most once in `AGAIN` seconds. Only signatures by private keys
are accepted: with HMAC anybody who has the public key could sign.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..actors.management.config import Config

ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
]

#: Seconds for which keys are used, and seconds between two attempts to read them.
KEPT, AGAIN = 3_600.0, 10.0

#: Seconds that the provider may take to answer, and bytes of its answer.
FETCH_SECONDS, FETCH_MAX = 5.0, 1 << 20

#: Seconds by which the clocks of the provider and of this machine may differ.
LEEWAY = 30


class TokenRefused(Exception):
    """A token that does not log anybody in; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a token names, and when it expires, in seconds since the epoch."""

    user: str
    ends: float


def is_token(text: str) -> bool:
    """Whether a password has the form of a token: three parts, of which the first is a JSON object in Base64."""
    return text.startswith("eyJ") and text.count(".") == 2


class Tokens:
    """See the module. The configuration has `oauth_keys`."""

    def __init__(self, config: Config) -> None:
        # The library belongs to the extra `oauth`, so it is imported only where the settings ask for it.
        import jwt

        self._jwt = jwt
        self._config = config
        self._keys: Any = None
        self._read_at = self._tried_at = -float("inf")
        self._lock = asyncio.Lock()

    async def bearer(self, token: str) -> Bearer:
        """Whom a token names. Raises TokenRefused."""
        jwt, config = self._jwt, self._config
        if not token.isascii():
            raise TokenRefused("the token is not valid: it has characters that tokens do not have")
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=config.oauth_audience,
                issuer=config.oauth_issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(f"the token is not valid: {error}") from None
        user = claims.get(config.oauth_user_claim)
        if not isinstance(user, str) or not user:
            raise TokenRefused(f"the token has no claim '{config.oauth_user_claim}' with the name of a user")
        return Bearer(user, float(claims["exp"]) + LEEWAY)

    async def _key(self, name: str | None) -> Any:
        """The key of this name, or the only one. Raises TokenRefused."""
        if time.monotonic() - self._read_at > KEPT or self._named(name) is None:
            await self._read()
        found = self._named(name)
        if found is None:
            raise TokenRefused(f"the provider has no key '{name}'" if name else "the token does not name its key")
        return found

    def _named(self, name: str | None) -> Any:
        keys = [] if self._keys is None else self._keys.keys
        if name is None:
            return keys[0] if len(keys) == 1 else None
        return next((key for key in keys if key.key_id == name), None)

    async def _read(self) -> None:
        """Read the keys, unless that was tried a moment ago. Raises TokenRefused if there are none."""
        async with self._lock:
            now = time.monotonic()
            if now - self._tried_at < AGAIN:
                if self._keys is None:
                    raise TokenRefused(f"the keys at {self._config.oauth_keys} could not be read a moment ago")
                return
            self._tried_at = now
            try:
                text = await asyncio.to_thread(_fetched, str(self._config.oauth_keys))
                self._keys = self._jwt.PyJWKSet.from_dict(json.loads(text))
            except (OSError, ValueError, AttributeError, TypeError, self._jwt.PyJWTError) as error:
                if self._keys is None:
                    raise TokenRefused(f"the keys at {self._config.oauth_keys} cannot be read: {error}") from None
                return
            self._read_at = now


def _fetched(place: str) -> bytes:
    """What is at an address or in a file. Raises OSError, and ValueError if it is too long."""
    if "://" not in place:
        return Path(place).read_bytes()
    with urllib.request.urlopen(place, timeout=FETCH_SECONDS) as answer:
        text: bytes = answer.read(FETCH_MAX + 1)
    if len(text) > FETCH_MAX:
        raise ValueError(f"more than {FETCH_MAX} bytes")
    return text
