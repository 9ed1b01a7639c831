"""`GET /api/events`: one stream of server-sent events that keeps a whole page up to date.

The page names what it shows, each as a path below `/api/` with its query:

    /api/events?get=overview&get=queues%3Fpage%3D1%26sort%3Dmessages

The stream sends each of them at once, and after every statistics interval those that have changed, as an event whose
name is the number of the path and whose data are the JSON that a GET of it answers. So the process builds only what the
page shows, and a page needs one connection. For a path that is refused the event has the refusal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Hashable
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..answers.listing import LongList
from ..call import Answer, ApiCall
from ..errors import HttpError, bad_request

#: The most paths of one stream, and the most streams that may be open.
PATHS_MAX, STREAMS_MAX = 16, 1_000


class EventStreams:
    """The streams that are open, and what they have in common."""

    def __init__(self) -> None:
        self.count = 0
        self._tick = -1
        self._shown: dict[Hashable, asyncio.Task[str]] = {}

    async def shown(self, call: ApiCall, path: str) -> str:
        """What a GET of the path answers. Streams of one user share the answer of each statistics interval: a hundred
        open pages cost hardly more than one.
        """
        if self._tick != call.state.history.tick:
            self._tick = call.state.history.tick
            self._shown = {}
        key = call.user.name, call.user.tags, call.request.headers.get("x-vhost"), path
        task = self._shown.get(key)
        if task is None:
            task = self._shown[key] = asyncio.create_task(_shown(call, path))
        # The stream that began may end meanwhile, and others still wait.
        return await asyncio.shield(task)


async def events(call: ApiCall) -> Any:
    paths = call.request.query_params.getlist("get")
    if not paths or len(paths) > PATHS_MAX:
        raise bad_request(f"a stream needs 1 to {PATHS_MAX} parameters 'get', each with a path below /api/")
    if call.request.method == "HEAD":
        # There is no body to wait for, and so no end of one: the connection would never be free again.
        return Response(media_type="text/event-stream")
    streams: EventStreams = call.request.app.state.streams
    if streams.count >= STREAMS_MAX:
        raise HttpError(503, "service_unavailable", f"{STREAMS_MAX} streams of events are open; close some of them")
    return StreamingResponse(_stream(streams, call, paths), media_type="text/event-stream")


async def _stream(streams: EventStreams, call: ApiCall, paths: list[str]) -> AsyncIterator[str]:
    known: dict[int, str] = {}
    streams.count += 1
    # A page opens a stream to see what it has just changed, so the first events are no answers of before.
    show = _shown
    try:
        while True:
            for number, path in enumerate(paths):
                text = await show(call, path)
                if known.get(number) != text:
                    known[number] = text
                    yield f"event: {number}\ndata: {text}\n\n"
            # A comment for the client to ignore: the attempt to send it shows whether the client is gone.
            yield f": {call.state.history.tick}\n\n"
            await call.next_tick()
            show = streams.shown
            user = call.state.users.get(call.user.name)
            if user is None or call.user.ends < time.time():
                return
            call.user = replace(call.user, tags=frozenset(user["tags"]))
    finally:
        streams.count -= 1


async def _shown(call: ApiCall, path: str) -> str:
    """What a GET of the path answers, as JSON in one line."""
    try:
        value = await _value(call, path)
    except HttpError as error:
        value = error.body
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


async def _value(call: ApiCall, path: str) -> Any:
    raw, _, query = path.partition("?")
    # `find` looks up the table of endpoints. That table contains this module's handler, so it cannot be imported here.
    found = call.request.app.state.find(raw)
    if found is None or "GET" not in found[0].methods:
        raise HttpError(404, "Object Not Found", "Not Found")
    who, handler = found[0].methods["GET"]
    call.user.check("management")
    if who is not None:
        call.user.check(who)
    scope = {**call.request.scope, "method": "GET", "path": f"/api/{raw}", "raw_path": f"/api/{raw}".encode()}
    request = Request({**scope, "query_string": query.encode()})
    value = await handler(call.sub_call(request, found[1]))
    if isinstance(value, Response):
        raise bad_request("a stream of events cannot contain another one")
    if isinstance(value, LongList):
        return await value.rows()
    return value.value if isinstance(value, Answer) else value
