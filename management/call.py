"""`ApiCall`: one request of the API, with what its handler needs."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from ..actors.management.config import Config
from .access import Login, Logins
from .copy.follower import StatisticsFollower
from .copy.history import SAMPLES_MAX
from .copy.node_link import NodeLink, OperationRefused
from .copy.node_state import NodeState
from .errors import HttpError, bad_request, key_missing, not_authorised, not_found, of_refusal

#: Prefixes of the query parameters that ask for samples, for example `lengths_age` and `lengths_incr` (CM-249).
RANGES = ("lengths", "msg_rates", "data_rates", "node_stats")

#: A whole number of seconds, with as many digits as Python turns into a float.
SECONDS = re.compile("[0-9]{1,15}")

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler returns if the status is not 200 or if the answer has headers of its own."""

    status: int
    value: Any = None
    headers: Mapping[str, str] | None = None


class ApiCall:
    """One request, with what its handler needs. `names` are the decoded names in the path."""

    def __init__(
        self,
        request: Request,
        names: Mapping[str, str],
        config: Config,
        state: NodeState,
        link: NodeLink,
        follower: StatisticsFollower,
        logins: Logins,
    ) -> None:
        self.request = request
        self.names = names
        self.config = config
        self.state = state
        self.logins = logins
        self._link = link
        self._follower = follower
        self._body: bytes | None = None
        self.user: Login = Login("", frozenset())

    # -- the query ---

    def query(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def flag(self, name: str) -> bool:
        return self.query(name) == "true"

    def ranges(self) -> dict[str, Range]:
        """Age and increment in seconds of the samples that the request asks for. Raises HttpError."""
        found = {}
        for name in RANGES:
            age, step = self.query(f"{name}_age"), self.query(f"{name}_incr")
            if age is None or step is None:
                continue
            is_good = all(SECONDS.fullmatch(each) for each in (age, step))
            if not is_good or not int(step) or int(age) / int(step) > SAMPLES_MAX:
                raise HttpError(400, "invalid_range_parameters", f"Invalid range parameters: age {age}, incr {step}")
            found[name] = (float(age), float(step))
        return found

    # -- what the user may see ---

    def sees_vhost(self, vhost: str) -> bool:
        return self.user.has("monitoring") or (self.user.name, vhost) in self.state.permissions

    def visible_vhosts(self) -> list[str]:
        """The virtual hosts that the answer may be about, in order; with a header `x-vhost` only that (CM-237)."""
        only = self.request.headers.get("x-vhost")
        return sorted(name for name in self.state.vhosts if self.sees_vhost(name) and only in (None, "", name))

    def vhost(self) -> str:
        """The virtual host in the path. Raises HttpError if there is none, or if the user may not see it."""
        name = self.names["vhost"]
        if name not in self.state.vhosts:
            raise not_found()
        if not self.sees_vhost(name):
            raise not_authorised("User not authorised to access virtual host")
        return name

    def own_vhost(self) -> str:
        """As `vhost`, for a change: the user needs permissions there, whatever tags the user has."""
        name = self.vhost()
        if (self.user.name, name) not in self.state.permissions:
            raise not_authorised("User not authorised to access virtual host")
        return name

    def ruled_vhost(self) -> str:
        """As `vhost`, for a change of policies and parameters: all users but administrators need permissions there. The
        tag monitoring, with which a user sees all virtual hosts, grants no change of any.
        """
        return self.vhost() if self.user.has("administrator") else self.own_vhost()

    def exchange(self) -> str:
        """The exchange in the path, where `amq.default` stands for the default exchange."""
        name = self.names["exchange"]
        return "" if name == "amq.default" else name

    # -- the body ---

    async def body(self, most: int | None = None) -> bytes:
        """The body of the request. Raises HttpError if it is longer than the limit of all bodies, or than `most`."""
        limit = self.config.body_limit if most is None else min(most, self.config.body_limit)
        if self._body is None:
            pieces, size = [], 0
            async for piece in self.request.stream():
                size += len(piece)
                if size > limit:
                    raise bad_request("Exceeded HTTP request body size limit")
                pieces.append(piece)
            self._body = b"".join(pieces)
        return self._body

    async def fields(self, error: str = "not_json") -> dict[str, Any]:
        """The JSON object in the body; an empty body and `null` count as an empty object (CM-238). Raises HttpError."""
        return json_object(await self.body(), error)

    # -- the node ---

    async def perform(self, operation: str, **arguments: Any) -> Any:
        """Have the node perform an operation. Requests that come later see its effect. Raises OperationRefused."""
        try:
            return await self._link.call(operation, **arguments)
        finally:
            self._follower.changed()

    async def operate(self, operation: str, **arguments: Any) -> Any:
        """As `perform`, for an operation that changes nothing. Raises HttpError."""
        try:
            return await self._link.call(operation, **arguments)
        except OperationRefused as refusal:
            raise of_refusal(refusal) from None

    async def operate_on(self, node: str, operation: str, **arguments: Any) -> Any:
        """As `operate`, at this node or another one of the cluster."""
        if node == self.state.node_name:
            return await self.operate(operation, **arguments)
        try:
            return await self._link.call_on(node, operation, **arguments)
        except OperationRefused as refusal:
            raise of_refusal(refusal) from None

    async def rows_of_all(self, operation: str, **arguments: Any) -> list[Any]:
        """The rows of a listing at all nodes, without those of other nodes that fail. Raises the error of this node."""
        nodes = [counted.node_name for counted in self.state.counted]
        found = await asyncio.gather(
            *[self.operate_on(node, operation, **arguments) for node in nodes], return_exceptions=True
        )
        if isinstance(found[0], BaseException):
            raise found[0]
        return [row for rows in found if not isinstance(rows, BaseException) for row in rows or []]

    async def change(self, operation: str, **arguments: Any) -> Any:
        """As `perform`. Raises HttpError."""
        try:
            return await self.perform(operation, **arguments)
        except OperationRefused as refusal:
            raise of_refusal(refusal) from None

    async def change_on(self, node: str, operation: str, **arguments: Any) -> Any:
        """As `change`, at this node or another one of the cluster."""
        try:
            return await self.operate_on(node, operation, **arguments)
        finally:
            self._follower.changed()

    async def next_tick(self) -> None:
        """Return when the next statistics interval has passed."""
        await self._follower.next_tick()

    def sub_call(self, request: Request, names: Mapping[str, str]) -> ApiCall:
        """A call of the same user for another request."""
        call = ApiCall(request, names, self.config, self.state, self._link, self._follower, self.logins)
        call.user = self.user
        return call

    async def refresh(self) -> None:
        """Update the copy of the node at once, because a thing that it lacks may have been created a moment ago."""
        await self._follower.fresh(at_once=True)

    async def find(self, get: Callable[[], Any]) -> Any:
        """What `get` returns; if that is None, what it returns after an update of the copy. Raises HttpError 404."""
        found = get()
        if found is None:
            await self.refresh()
            found = get()
        if found is None:
            raise not_found()
        return found


def json_object(text: bytes, error: str) -> dict[str, Any]:
    """The JSON object in a text; nothing and `null` count as an empty object (CM-238). Raises HttpError."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
        if b"\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        raise bad_request(error) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(error)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(digits: str) -> float:
    """A number that can be shown as JSON again. Raises ValueError."""
    if not math.isfinite(number := float(digits)):
        raise ValueError(digits)
    return number


def required(fields: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of these keys. Raises HttpError for the first one that is missing."""
    for name in names:
        if name not in fields:
            raise key_missing(name)
    return [fields[name] for name in names]


def boolean(value: Any) -> bool:
    """The boolean that a value stands for; tools also send booleans as text (CM-239). Raises HttpError."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    if value is None or value == "":
        return False
    raise bad_request(["not_boolean", value])


def integer(value: Any) -> int:
    """The whole number that a value stands for, which may be text. Raises HttpError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise bad_request(["not_integer", value])


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise bad_request(["not_string", name])
    return value
