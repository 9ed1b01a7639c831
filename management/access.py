"""Authentication and authorisation of HTTP requests (CM-226 to CM-230).

A request has a name and a password in its header, a token of an OAuth 2 provider (`tokens.py`), or the cookie that
`POST /api/login` sets. Where a client can send a name and a password only, the password may be a token. The cookie is
opaque and signed with a key that only this process has. It expires after `management_session_minutes`, and when the
user's password changes. Pages of other sites cannot use a login: browsers do not send the cookie with their requests
(SameSite=Strict), and forms of other sites are refused with a name and a password too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import time
from dataclasses import dataclass, replace
from ipaddress import ip_address
from math import inf
from typing import Literal
from urllib.parse import unquote

from starlette.requests import Request

from ..actors.management.config import Config
from ..definitions.passwords import is_password
from .copy.node_state import NodeState
from .errors import HttpError, login_failed, login_needed, not_authorised, token_refused
from .tokens import TokenRefused, Tokens, is_token

log = logging.getLogger("warren.management")

#: The tags, from the weakest to the strongest. Each grants the rights of those before it, except that monitoring does
#: not grant those of policymaker (CM-228).
Who = Literal["management", "policymaker", "monitoring", "administrator"]

GRANTS: dict[Who, frozenset[str]] = {
    "management": frozenset({"management", "policymaker", "monitoring", "administrator"}),
    "policymaker": frozenset({"policymaker", "administrator"}),
    "monitoring": frozenset({"monitoring", "administrator"}),
    "administrator": frozenset({"administrator"}),
}

REFUSALS: dict[Who, str] = {
    "management": "Not management user",
    "policymaker": "Not policymaker user",
    "monitoring": "Not monitor user",
    "administrator": "Not administrator user",
}

COOKIE = "auth"

#: The types of content that a form of any page may have. Some browsers send none with an empty body.
FORMS = frozenset({"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"})

#: The password hash that is checked for an unknown user, so that response times do not reveal which users exist.
NOBODY = base64.b64encode(bytes(36)).decode()


@dataclass(frozen=True, slots=True)
class Login:
    """The user who makes a request."""

    name: str
    tags: frozenset[str]
    #: When the token or the cookie expires with which the user has logged in, in seconds since the epoch.
    ends: float = inf

    def has(self, who: Who) -> bool:
        return bool(self.tags & GRANTS[who])

    def check(self, who: Who) -> None:
        """Raise HttpError 401 unless a tag of the user grants the rights of the tag `who`."""
        if not self.has(who):
            raise not_authorised(REFUSALS[who])


class Logins:
    """Authenticates requests, and issues cookies."""

    def __init__(self, config: Config, state: NodeState) -> None:
        self._config = config
        self._state = state
        self._key = secrets.token_bytes(32)
        self._tokens = None if config.oauth_keys is None else Tokens(config)
        #: Counts of the logins by this API: all, and those that failed.
        self.attempts = self.failures = 0
        #: The counts of accepted and refused logins at the latest request that deleted them, by node and protocol, and
        #: by node, address and user. They are subtracted from the counts that are shown.
        self.forgotten: dict[tuple[str, ...], tuple[int, int]] = {}

    async def login(self, request: Request) -> Login:
        """The user of the request. Raises HttpError."""
        header = request.headers.get("authorization", "")
        kind, _, value = header.partition(" ")
        if kind.lower() == "basic":
            _check_not_forged(request, self._config.cors_allow_origins)
            name, password = _split(value)
            return await self.verify(name, password, request)
        if kind.lower() == "bearer" and self._tokens is not None:
            return await self._bearer(self._tokens, value.strip(), None, request)
        cookie = request.cookies.get(COOKIE)
        if cookie is not None:
            return await self._of_cookie(cookie, request)
        raise login_needed() if not header else login_failed()

    async def verify(self, name: str, password: str, request: Request) -> Login:
        """The user with this name and password. Raises HttpError."""
        if self._tokens is not None and is_token(password):
            return await self._bearer(self._tokens, password, name, request)
        self.attempts += 1
        user = self._state.users.get(name)
        known = user or {"password_hash": NOBODY, "hashing_algorithm": "rabbit_password_hashing_sha256"}
        if not is_password(password, known["password_hash"], known["hashing_algorithm"]) or user is None:
            self.failures += 1
            raise login_failed()
        return self._login(name, request)

    def _login(self, name: str, request: Request) -> Login:
        if name in self._config.loopback_users and not is_loopback(request):
            self.failures += 1
            raise login_failed("User can only log in via localhost")
        return Login(name, frozenset(self._state.users[name]["tags"]))

    async def _bearer(self, tokens: Tokens, token: str, name: str | None, request: Request) -> Login:
        """The user whom a token names, who is the user `name` if that is given. Raises HttpError."""
        self.attempts += 1
        try:
            bearer = await tokens.bearer(token)
            if name and name != bearer.user:
                raise TokenRefused("the token is one of another user")
            if bearer.user not in self._state.users:
                raise TokenRefused(f"there is no user '{bearer.user}'. An administrator can add the user")
        except TokenRefused as refusal:
            self.failures += 1
            log.warning("a login with a token was refused: %s", refusal)
            raise token_refused(str(refusal)) from None
        return replace(self._login(bearer.user, request), ends=bearer.ends)

    async def _of_cookie(self, cookie: str, request: Request) -> Login:
        parts = unquote(cookie).split(".")
        if len(parts) == 3 and self._is_signed(*parts):
            name = _decoded(parts[0])
            if name in self._state.users and parts[1].isdigit() and int(parts[1]) > time.time():
                _check_same_site(request)
                return replace(self._login(name, request), ends=float(parts[1]))
        elif is_loopback(request):
            # The cookie of RabbitMQ's own page: name and password in Base64.
            name, password = _split(unquote(cookie))
            return await self.verify(name, password, request)
        raise login_failed()

    def cookie(self, login: Login) -> str:
        """A new cookie for a user that has just been authenticated. It does not outlive a token."""
        name = login.name
        user = base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode().rstrip("=")
        end = str(int(min(time.time() + self._config.session_minutes * 60, login.ends)))
        return f"{user}.{end}.{self._signature(user, end)}"

    def _is_signed(self, user: str, end: str, signature: str) -> bool:
        """Whether this process has made the signature. `compare_digest` takes texts only if they are ASCII."""
        wanted, given = self._signature(user, end), signature.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(wanted.encode(), given)

    def _signature(self, user: str, end: str) -> str:
        found = self._state.users.get(_decoded(user), {})
        text = f"{user}.{end}.{found.get('password_hash', '')}"
        return hmac.new(self._key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _check_same_site(request: Request) -> None:
    """Refuse a change by a page of another site, in case a browser has sent the cookie despite SameSite."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise HttpError(403, "forbidden", "a page of another site cannot change anything with this login")


def _check_not_forged(request: Request, trusted: tuple[str, ...]) -> None:
    """Refuse what a form on a page of another site may have sent. A browser that has once asked for the name and the
    password adds them to every request, whichever page makes it. For other methods, headers and types of content than
    those of forms it first asks this API by OPTIONS whether the site is one of `cors_allow_origins`.
    """
    headers = request.headers
    origin = headers.get("origin")
    if request.method != "POST" or origin is None or "x-requested-with" in headers:
        return
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in FORMS:
        return
    is_own = origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not is_own and origin not in trusted and "*" not in trusted:
        raise HttpError(403, "forbidden", f"a form of {origin} cannot change anything with this login")


def is_loopback(request: Request) -> bool:
    host = request.client.host if request.client is not None else ""
    try:
        address = ip_address(host.split("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _split(value: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(value.strip(), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        raise login_failed() from None
    name, colon, password = text.partition(":")
    if not colon:
        raise login_failed()
    return name, password


def _decoded(user: str) -> str:
    try:
        return base64.urlsafe_b64decode(user + "=" * (-len(user) % 4)).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""
