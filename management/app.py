"""The ASGI application of the API: from a request to its answer.

Starlette provides requests, answers, compression and CORS headers. Its router is not used, because it decodes paths
before it matches them, and the virtual host `/` is `%2F` in a path.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..actors.management.config import Config
from .access import Logins
from .answers.listing import LongList
from .call import Answer, ApiCall
from .copy.follower import StatisticsFollower
from .copy.node_link import NodeLink, NodeUnreachable
from .copy.node_state import NodeState
from .endpoints import ENDPOINTS, Endpoint, find
from .errors import HttpError, bad_request
from .handlers.events import EventStreams
from .static import ManagementPage

log = logging.getLogger("warren.management")

#: Headers that limit what browsers may do with an answer (CM-236). Pages may load scripts and styles from here alone.
HEADERS = {
    "cache-control": "no-cache",
    "vary": "accept, accept-encoding, origin",
    "content-security-policy": "default-src 'self'; script-src 'self'; style-src 'self'; object-src 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

#: Surrogates, each of which stands for a byte of a text that is not UTF-8 (`surrogateescape`). UTF-8 has none.
SURROGATES = re.compile("[\ud800-\udfff]")

#: The media types in the header `accept` with which a client takes JSON, and those with which it takes a stream of
#: events: the `EventSource` of browsers and libraries sends `text/event-stream` alone.
JSON = frozenset({"application/json", "application/*", "*/*"})
EVENTS = JSON | {"text/event-stream", "text/*"}

#: Bytes below which an answer is not compressed.
COMPRESSED_FROM = 1_000


class Api:
    """Answers requests. Each one first waits until the copy of the node is fresh enough."""

    def __init__(self, config: Config, state: NodeState, link: NodeLink, follower: StatisticsFollower) -> None:
        self._config = config
        self._state = state
        self._link = link
        self._follower = follower
        self._logins = Logins(config, state)
        self._page = ManagementPage(config.path_prefix, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except HttpError as error:
            response = _json(error.status, error.body, _without_prompt(request, error.headers))
        except NodeUnreachable as error:
            reason = f"the node does not answer: {error}"
            response = _json(503, {"error": "service_unavailable", "reason": reason}, {})
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        if not path.startswith(self._config.path_prefix):
            return _outside(path)
        path = path.removeprefix(self._config.path_prefix)
        if not path.startswith("/api/") or path in ("/api/", "/api/index.html"):
            return self._page.answer(request, path) or _outside(path)
        found = find(path.removeprefix("/api/"))
        if found is None:
            raise HttpError(404, "Object Not Found", "Not Found")
        endpoint, names = found
        allowed = _allowed(endpoint)
        if request.method == "OPTIONS":
            return Response(status_code=200, headers={**HEADERS, "allow": allowed})
        method = "GET" if request.method == "HEAD" else request.method
        if method not in endpoint.methods:
            return Response(status_code=405, headers={**HEADERS, "allow": allowed})
        who, handler = endpoint.methods[method]
        await self._follower.fresh()
        call = ApiCall(request, names, self._config, self._state, self._link, self._follower, self._logins)
        if who is not None:
            call.user = await self._logins.login(request)
            call.user.check("management")
            call.user.check(who)
        if method == "PUT":
            _check_names(names)
        if not _accepts(request, EVENTS if endpoint is ENDPOINTS["events"] else JSON):
            return Response(status_code=406, headers=HEADERS)
        value = await handler(call)
        if isinstance(value, Response):
            value.headers.update(HEADERS)
            return value
        answer = value if isinstance(value, Answer) else Answer(200, value)
        if method != "GET":
            _audit(call, answer.status)
        return _json(answer.status, answer.value, dict(answer.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    """The answer to a request whose handler has failed. The log has the error."""
    return _json(500, {"error": "internal_server_error", "reason": "the log of the node has the error"}, {})


def _without_prompt(request: Request, headers: dict[str, str]) -> dict[str, str]:
    """The headers without the one that makes a browser ask for a password, if the page's script sent the request.

    The page has a login form of its own.
    """
    if request.headers.get("x-requested-with"):
        return {name: value for name, value in headers.items() if name != "www-authenticate"}
    return headers


def _check_names(names: Mapping[str, str]) -> None:
    """Raise HttpError for a name that is not UTF-8. What has such a name can hardly be shown or deleted."""
    if any("\ud800" <= each <= "\udfff" for name in names.values() for each in name):
        raise bad_request("a name in the path is not UTF-8")


def _allowed(endpoint: Endpoint) -> str:
    """The value of the header `allow`: the methods that the endpoint has, in RabbitMQ's order."""
    known = {*endpoint.methods, "OPTIONS"} | ({"HEAD"} if "GET" in endpoint.methods else set())
    return ", ".join(name for name in ("HEAD", "GET", "POST", "PUT", "DELETE", "OPTIONS") if name in known)


def _accepts(request: Request, media_types: frozenset[str]) -> bool:
    """Whether the client takes the answer. One that prefers Erlang's terms and takes JSON gets JSON (CM-235)."""
    header = request.headers.get("accept")
    return not header or any(part.split(";")[0].strip().lower() in media_types for part in header.split(","))


def _json(status: int, value: Any, headers: dict[str, str]) -> Response:
    if value is None:
        return Response(status_code=status, headers={**HEADERS, **headers})
    headers = {**HEADERS, "content-type": "application/json", **headers}
    if isinstance(value, LongList):
        return StreamingResponse(_pieces(value), status_code=status, headers=headers)
    return Response(_encoded(value), status_code=status, headers=headers)


async def _pieces(rows: LongList[Any]) -> AsyncIterator[bytes]:
    """A long list in pieces, so that other requests have their turn in between."""
    opening = b"["
    async for part in rows.slices():
        if part:
            yield opening + _encoded(part)[1:-1]
            opening = b","
    yield b"[]" if opening == b"[" else b"]"


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Such bytes become replacement characters, so that the answer is valid JSON (CM-295).
        return SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text).encode()


def _audit(call: ApiCall, status: int) -> None:
    """One line for each change: who, from where, what, and how it ended (CM-296)."""
    request = call.request
    host = request.client.host if request.client is not None else "?"
    path = request.scope["raw_path"].decode("latin-1")
    log.info("user '%s' from %s: %s %s -> %d", call.user.name, host, request.method, path, status)


def _outside(path: str) -> Response:
    """The answer for a path that names neither endpoint nor file: the reference at the root of the API, or 404."""
    if path in ("/api", "/api/", "/api/index.html"):
        return Response(_reference(), headers={**HEADERS, "content-type": "text/html; charset=utf-8"})
    return _json(404, {"error": "Object Not Found", "reason": "Not Found"}, {})


def _reference() -> str:
    """A page that lists the endpoints, with the tag that each method needs (CM-225)."""
    rows = [
        f"<tr><td><code>/api/{path}</code></td><td>{', '.join(endpoint.methods)}</td>"
        f"<td>{', '.join(dict.fromkeys(who or 'anybody' for who, _ in endpoint.methods.values()))}</td></tr>"
        for path, endpoint in ENDPOINTS.items()
    ]
    return REFERENCE.format("\n".join(rows))


REFERENCE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>warren management</title></head>
<body><h1>warren management</h1>
<p>The HTTP API has the endpoints and objects of RabbitMQ 3.10, and some of its own. <code>docs/management.md</code>
describes it. <code>:name</code> stands for a name with percent encoding; the virtual host <code>/</code> is
<code>%2F</code>.</p>
<table><thead><tr><th>path</th><th>methods</th><th>tag of the user</th></tr></thead><tbody>
{}
</tbody></table></body></html>
"""


def application(config: Config, state: NodeState, link: NodeLink, follower: StatisticsFollower) -> Starlette:
    """The whole application of the API."""
    middleware = [Middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM, compresslevel=5)]
    if config.cors_allow_origins:
        middleware.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=list(config.cors_allow_origins),
                allow_methods=["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"],
                allow_headers=["authorization", "content-type", "x-vhost", "x-reason"],
                allow_credentials=True,
                max_age=config.cors_max_age,
            ),
        )
    app = Starlette(middleware=middleware, exception_handlers={Exception: _failed})
    # No route: a pattern of Starlette's fits no path with a line break, which names may have.
    app.router.default = Api(config, state, link, follower)
    app.state.find = find
    app.state.streams = EventStreams()
    return app
