"""Traces: what a simulation did, as tuples (virtual time, kind, ...). These are the kinds and their fields:

    turn     actor, sender, message        the actor handled the message, shown by the world's `describe`
    resume   actor, coroutine              the actor resumed a coroutine that was woken, or took a turn for nothing else
    slice    actor, handler                the actor did the next slice of a handler that works in slices
    serve    actor, descriptor, readiness  the actor served a descriptor
    recv     socket, bytes                 an actor read
    send     socket, bytes                 an actor or a client wrote, and the socket took these bytes
    heard    socket, bytes                 a client read
    client   client, event                 `connected`, or the reason for which its connection was lost
    job      actor, function, ok           a blocking call was made
    end      actor, reason                 an actor ended
    link     machine, system, event        the machine's connection to a system on another one is `up` or `down`
    lost     sender, target, message       a message between machines arrived after its connection had ended
    machine  machine, event                `boot-1`, `crash`, `power cut`, `pause`, `resume`

The same scenario with the same seed must give the same trace, in every process of the operating system; `digest` makes
traces easy to compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from thespian.actors import ActorAddress

Entry = tuple[Any, ...]
Describe = Callable[[Any], Any]

_PLAIN = frozenset({bool, bytes, float, int, range, str, type(None)})


def message_name(message: Any) -> Any:
    """The name of a message, its class if it is no tuple, or for an ask ("ask", name of the message). Takes 0.2 µs."""
    if type(message) is tuple and message:
        name = message[0]
        if name == "ask" and len(message) == 3:
            return ("ask", message_name(message[2]))
        return name
    return type(message).__name__


def whole_message(message: Any) -> Any:
    """A message with all its fields as plain values, for traces that are compared.

    Live objects are shown as the names of their classes.
    """
    kind = type(message)
    if kind in _PLAIN:
        return message
    if isinstance(message, ActorAddress):
        return message.addressDetails
    if isinstance(message, (tuple, list)):
        return tuple(map(whole_message, message))
    if isinstance(message, dict):
        return tuple((whole_message(key), whole_message(value)) for key, value in message.items())
    if isinstance(message, (set, frozenset)):
        return tuple(sorted(map(whole_message, message), key=repr))
    if isinstance(message, (bytearray, memoryview)):
        return bytes(message)
    if isinstance(message, BaseException):
        return (kind.__name__, str(message))
    if is_dataclass(message):
        return (kind.__name__, *(whole_message(getattr(message, field.name)) for field in fields(message)))
    return kind.__name__


def digest(trace: Iterable[Entry]) -> str:
    """SHA-256 of the trace, in hexadecimal."""
    total = hashlib.sha256()
    for entry in trace:
        total.update(repr(entry).encode("utf-8", "backslashreplace"))
    return total.hexdigest()


def story(trace: Iterable[Entry], size: int = 60) -> Iterator[str]:
    """The trace for a person, one line for each entry; of bytes only the first `size` are shown."""
    for time, what, *details in trace:
        shown = (
            f"{len(detail)} bytes {detail[:size]!r}" if isinstance(detail, bytes) else str(detail) for detail in details
        )
        yield f"{time:12.6f} {what:8} {'  '.join(shown)}"
