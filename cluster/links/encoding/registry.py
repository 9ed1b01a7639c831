"""What may cross a link: a closed list of messages and of errors (CL-12).

    Crossing(303, to_queue.cancel, TEXT, TEXT, answer=BOOLEAN)
    Crossing(311, to_queue.purge, answer=INTEGER)

An entry has the number of the message on the wire, the method of the contract that makes it, and a codec for each field
in the contract's order; `answer` is the codec of the answer to an ask. The name, the number of fields and their
defaults come from the contract, so that list and contract cannot differ. A number is never used again for another
message: during a rolling upgrade nodes of two versions exchange messages. For the same reason new fields come last and
have defaults: an older node ignores them, and a newer one takes the defaults if they are missing.

`is_credited` is for messages that carry contents and that nobody asked for. A process that sends one while too much
waits to be written gets `link_full(node)` (CL-15), and `link_free(node)` as soon as less waits.

A message that some processes send and others ask needs only one entry. Two contracts may have messages of one name if
their fields are the same; the entry then serves both.

The lane of a message follows from the kinds of its sender and receiver, never from the message itself, so that
everything that one process sends to another stays in order (CL-5). `LANES` lists the kinds that do not use the lane
`data`. The kind of a process is the part of its local id before the first `-` or `/`: the class of a process without a
name, the name of others.

| numbers | messages |
|---|---|
| 0 – 9 | those of the runtime: ask, answer, forget, monitor, demonitor, down |
| 100 – 199 | members and consensus |
| 200 – 299 | between replicas |
| 300 – 399 | to queues |
| 400 – 499 | to channels |
| 500 – 599 | to other processes of a node: for commands and listings, alarms, paces and counts of sessions |
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from ....amqp.errors import AmqpError
from ....runtime.errors import ProcessDown, ProcessError, ProcessTimeout, UnknownMessage
from .codecs import EXIT_REASON, PLAIN, Codec, CodecError, Incoming, NotCarried, Outgoing

CONTROL, DATA, BULK = "control", "data", "bulk"

#: The lanes of a link, in the order in which they are connected.
LANE_NAMES = (CONTROL, DATA, BULK)

#: The lanes of processes whose messages do not travel on `data`. A message to such a process carries the name by which
#: others find it, and a message from it the address that its system gave it, which contains the name of its class.
LANES = {
    **dict.fromkeys(("alarms", "Alarms", "consensus", "Consensus", "members", "Members"), CONTROL),
    **dict.fromkeys(("sessions", "SessionTracking"), CONTROL),
    # Listings: the rows of 100,000 queues must not hold up what clients send.
    **dict.fromkeys(("node", "NodeSupervisor", "ControlSession", "RemoteSession"), BULK),
}

#: Numbers below belong to messages of the runtime.
FIRST_NUMBER = 10


class Crossing:
    """One entry of the list; see the module."""

    __slots__ = ("_decoders", "_encoders", "answer", "defaults", "is_credited", "name", "needed", "number", "size")

    def __init__(
        self, number: int, message: Any, *codecs: Codec, answer: Codec = PLAIN, is_credited: bool = False
    ) -> None:
        if number < FIRST_NUMBER:
            raise ValueError(f"{number} is a number of the runtime's own messages")
        parameters = list(inspect.signature(message.declared).parameters.values())[1:]
        self.number = number
        self.name: str = message.declared.__name__
        # A value of a codec's `types` crosses as it is, and calling the codec would take longer than all the rest.
        self._encoders = [(codec.types, codec.encode) for codec in codecs]
        self._decoders = [(codec.types, codec.decode) for codec in codecs]
        self.answer = answer
        self.is_credited = is_credited
        if len(parameters) != len(codecs):
            raise TypeError(f"the message {self.name} has {len(parameters)} fields, and {len(codecs)} codecs are given")
        self.defaults = tuple(item.default for item in parameters if item.default is not item.empty)
        #: Fields that must be there, and the length of the message with its name.
        self.needed = len(codecs) - len(self.defaults)
        self.size = len(codecs) + 1

    def encode(self, message: tuple[Any, ...], out: Outgoing) -> list[Any]:
        """The fields of a message. Raises NotCarried."""
        if len(message) != self.size:
            raise NotCarried(f"the message {self.name} has {len(message) - 1} fields instead of {self.size - 1}")
        try:
            return [
                value if type(value) in types else encode(value, out)
                for (types, encode), value in zip(self._encoders, message[1:])
            ]
        except NotCarried as error:
            raise NotCarried(f"the message {self.name} cannot be sent to another node: {error}") from None

    def decode(self, fields: list[Any], incoming: Incoming) -> tuple[Any, ...]:
        """The message with these fields. Raises CodecError."""
        if len(fields) < self.needed:
            raise CodecError(f"{self.name} with {len(fields)} fields instead of {self.needed}")
        message = (
            self.name,
            *[
                value if type(value) in types else decode(value, incoming)
                for (types, decode), value in zip(self._decoders, fields)
            ],
        )
        missing = self.size - len(message)
        return message + self.defaults[len(self.defaults) - missing :] if missing else message


class _PlainError(Codec):
    """An error whose arguments are plain values."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind

    def encode(self, value: Any, out: Outgoing) -> Any:
        return PLAIN.encode(tuple(value.args), out)

    def decode(self, value: Any, incoming: Incoming) -> Any:
        arguments = PLAIN.decode(value, incoming)
        try:
            return self._kind(*arguments)
        except (TypeError, ValueError):
            raise CodecError(f"arguments that no {self._kind.__name__} has") from None


class _ProcessDown(Codec):
    def encode(self, value: Any, out: Outgoing) -> Any:
        return EXIT_REASON.encode(value.reason, out)

    def decode(self, value: Any, incoming: Incoming) -> Any:
        return ProcessDown(EXIT_REASON.decode(value, incoming))


class _AmqpError(Codec):
    """Code, text, class, method and the flags."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        return [value.code, value.text, value.class_id, value.method_id, value.drop, value.slow_drop, value.fatal]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        kinds = [int, str, int, int, bool, bool, bool]
        if type(value) is not list or [type(item) for item in value[: len(kinds)]] != kinds:
            raise CodecError("no AmqpError")
        code, text, class_id, method_id, drop, slow_drop, fatal = value[: len(kinds)]
        return AmqpError(code, text, class_id, method_id, drop=drop, slow_drop=slow_drop, fatal=fatal)


class Errors(Codec):
    """The errors that an ask may be answered with. One that is not listed arrives as a ProcessError with its text."""

    def __init__(self, listed: Mapping[int, tuple[type[Exception], Codec]]) -> None:
        self._codecs = {number: codec for number, (_, codec) in listed.items()}
        self._numbers = {kind: number for number, (kind, _) in listed.items()}

    def encode(self, value: Any, out: Outgoing) -> Any:
        number = self._numbers.get(type(value))
        if number is not None:
            try:
                return [number, self._codecs[number].encode(value, out)]
            except NotCarried:
                pass  # an argument is no plain value; its text must do
        return [0, PLAIN.encode((f"{type(value).__name__}: {value}",), out)]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) < 2 or type(value[0]) is not int:
            raise CodecError("no error")
        codec = self._codecs.get(value[0])
        if codec is None:
            return ProcessError(f"an error of a kind ({value[0]}) that this version does not know")
        return codec.decode(value[1], incoming)


def plain_errors(listed: Mapping[int, type[Exception]]) -> dict[int, tuple[type[Exception], Codec]]:
    """Entries of `Errors` for classes whose arguments are plain values."""
    return {number: (kind, _PlainError(kind)) for number, kind in listed.items()}


#: The errors that cross.
ERRORS = Errors(
    {
        **plain_errors({0: ProcessError, 1: ProcessTimeout, 2: UnknownMessage}),
        3: (ProcessDown, _ProcessDown()),
        4: (AmqpError, _AmqpError()),
    }
)


class Registry:
    """The messages that may cross, by name and by number, and the lanes of the kinds of process."""

    def __init__(self, entries: Iterable[Crossing], lanes: Mapping[str, str] | None = None) -> None:
        self.by_name: dict[str, Crossing] = {}
        self.by_number: dict[int, Crossing] = {}
        self.errors = ERRORS
        self._lanes = LANES if lanes is None else lanes
        for entry in entries:
            if entry.name in self.by_name or entry.number in self.by_number:
                raise ValueError(f"the message {entry.name} or its number {entry.number} is listed twice")
            self.by_name[entry.name] = self.by_number[entry.number] = entry

    def entry(self, message: Any) -> Crossing:
        """The entry of a message. Raises NotCarried if it is not listed."""
        if type(message) is tuple and message and type(message[0]) is str:
            found = self.by_name.get(message[0])
            if found is not None:
                return found
            raise NotCarried(f"the message {message[0]} is not listed among those that may be sent to another node")
        raise NotCarried(f"a {type(message).__name__} cannot be sent to another node")

    def lane(self, sender: str, receiver: str) -> str:
        """The lane between two processes with these local ids."""
        lanes = self._lanes
        return lanes.get(kind_of(receiver)) or lanes.get(kind_of(sender)) or DATA


def kind_of(local_id: str) -> str:
    """The kind of the process with this local id."""
    return local_id.partition("/")[0].partition("-")[0]
