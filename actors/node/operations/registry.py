"""The registry of operations: what an operator can have a node do, whichever way the request comes in.

An operation is a function with `@operation`, whose name is that of RabbitMQ's command with underscores. Its first
parameter is the `Operator`; all others are keyword arguments of plain values: texts, numbers, booleans, None, lists and
dicts with texts as keys. It is one of these:

    async def purge_queue(operator, *, vhost: str, name: str) -> int        returns one plain value
    async def list_queues(operator, *, vhost: str) -> AsyncIterator[Rows]   yields pieces of a long listing

A request may come from a socket, so `perform` compares the arguments with the parameters' annotations before the
operation runs. A refusal is an `OperationError` with RabbitMQ's text.

An operation runs in the process that received the request, beside other operations, and follows the rules for every
process: work in proportion to the number of queues, connections or rows is done in slices with `await
operator.process.next_turn()` between them.
"""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from ....runtime.errors import ProcessError

if TYPE_CHECKING:
    from ....runtime.contract import Address
    from ....runtime.process import Process
    from ...context.node_context import NodeContext
    from ...contracts.node import AppState, ToNode

log = logging.getLogger("warren.node")

#: The kind of error, for the exit code of a command: wrong use, malformed data, an unknown user, a refusal by the node
#: or a part of the node that does not answer, a wrong state inside the node, and a wait that took too long.
ErrorKind = Literal["usage", "data", "no_user", "unavailable", "software", "timeout"]

#: Seconds that an operation waits for a process. One that does not answer has no row, or a row with its name alone.
ANSWER_SECONDS = 5.0

#: By state of the app: the end of the error text of a command that needs the app to run.
WAY_OUT = {
    "starting": ", which is still starting. Wait for it with 'warren await_startup'.",
    "stopped": ". Start it with 'warren start_app'.",
}

#: A piece of a listing.
Rows = list[dict[str, Any]]

Function = TypeVar("Function", bound=Callable[..., Any])


class OperationError(ProcessError):
    """An operation that is refused. `text` is for the operator; `details` are further lines, one for each error."""

    def __init__(self, kind: ErrorKind, text: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(kind, text, details)
        self.kind = kind
        self.text = text
        self.details = details

    def __str__(self) -> str:
        return "\n".join((self.text, *self.details))


class Kept(Protocol):
    """Something that an operation keeps for later requests of its session (`Operator.kept`)."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operation works with: the process in which it runs, which asks others, and the node."""

    process: Process
    context: NodeContext
    node: Address[ToNode]
    #: What operations keep for the next request of the same session, such as a reading of statistics. `close` closes
    #: it at the end of the session.
    kept: dict[str, Kept] = field(default_factory=dict)

    def close(self) -> None:
        for each in self.kept.values():
            each.close()
        self.kept.clear()


def check_vhost(operator: Operator, vhost: str) -> None:
    """Raise OperationError if there is no virtual host of that name (CM-22)."""
    if not operator.context.routing.has_vhost(vhost):
        raise OperationError("data", f"Virtual host '{vhost}' does not exist")


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the registry."""

    function: Callable[..., Any]
    #: Whether the node performs it while it is still recovering its data directory.
    while_booting: bool
    #: The annotation of each keyword argument, and which of the arguments have a default.
    hints: Mapping[str, object]
    optional: frozenset[str]


OPERATIONS: dict[str, Operation] = {}


def operation(while_booting: bool = False) -> Callable[[Function], Function]:
    """Register a function as an operation under its own name."""

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        names = {parameter.name for parameter in parameters}
        hints = {
            name: hint for name, hint in typing.get_type_hints(function, localns=_FORWARD).items() if name in names
        }
        optional = frozenset(one.name for one in parameters if one.default is not one.empty)
        OPERATIONS[function.__name__] = Operation(function, while_booting, hints, optional)
        return function

    return register


#: Names in annotations of operations that exist for the type checker only.
_FORWARD: dict[str, object] = {"Operator": Operator, "AsyncIterator": AsyncIterator, "Rows": Rows}


def perform(operator: Operator, name: str, arguments: Mapping[str, object], state: AppState = "running") -> Any:
    """Begin an operation and return its coroutine, or its asynchronous iterator.

    Raises OperationError if there is no such operation, if its arguments do not fit, or if it needs the app to run and
    the app is in another `state`.
    """
    found = OPERATIONS.get(name)
    if found is None:
        raise OperationError("usage", f"Command '{name}' not found.")
    for key, value in arguments.items():
        if key not in found.hints:
            raise OperationError("usage", f"{name} has no argument '{key}'")
        if not _fits(value, found.hints[key]):
            # A password of the wrong type is a secret all the same.
            shown = f" be {value!r:.100}" if "password" not in key else f" be of the type {type(value).__name__}"
            raise OperationError("data", f"Bad argument: '{key}' of {name} cannot{shown}")
    missing = sorted(found.hints.keys() - arguments.keys() - found.optional)
    if missing:
        raise OperationError("usage", f"{name} needs the argument '{missing[0]}'")
    if state != "running" and not found.while_booting:
        text = f"this command requires the 'warren' app to be running on the target node{WAY_OUT[state]}"
        raise OperationError("usage", text)
    return found.function(operator, **arguments)


async def perform_once(operator: Operator, name: str, arguments: Mapping[str, object]) -> object:
    """Run an operation and return its answer. Raises OperationError, also if the operation answers in pieces."""
    outcome = perform(operator, name, arguments)
    if isinstance(outcome, AsyncIterator):
        # The pieces may have no end, as with the events of a node, and there is a single answer.
        text = f"{name} answers in pieces, which only a command receives: use 'warren {name}'"
        raise OperationError("usage", text)
    return await outcome


async def perform_unawaited(operator: Operator, name: str, arguments: Mapping[str, object]) -> None:
    """Run an operation whose outcome nobody awaits. The log gets its refusal."""
    try:
        outcome = perform(operator, name, arguments)
        if isinstance(outcome, AsyncIterator):
            async for _ in outcome:
                pass
        else:
            await outcome
    except OperationError as error:
        log.warning("%s, for which nobody waited, has ended: %s", name, error)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of the annotated type. Types that are not plain fit nothing."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is Literal:
        return value in typing.get_args(hint)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, typing.get_args(hint)[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, typing.get_args(hint)[1]) for one in value.values())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and -1 << 63 <= value < 1 << 63
    if hint is type(None):
        return value is None
    if hint is str:
        return isinstance(value, str) and is_text(value)
    return hint in (bool, bytes) and isinstance(value, hint)


def is_text(value: str) -> bool:
    """Whether the store can keep this text. Half of a surrogate pair is no text, unless it stands for an undecodable
    byte.
    """
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
