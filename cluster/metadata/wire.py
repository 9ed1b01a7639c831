"""What the nodes send each other about the log, as bytes.

    data       msgpack [version, [number, field, ...], ...]: what one node sends another one in a turn

The numbers are those of `MESSAGES`: the messages of the core of consensus, and those of this module. Entries, marks and
members are arrays within. Nothing that arrives is trusted to have the right form: each field is compared with the type
that the class declares, and `received` raises WireError for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from ..consensus import messages
from ..consensus.log import Entry, Mark
from ..consensus.membership import RaftMembers

VERSION = 1

#: Bytes of messages in one `data`. An append has half of that at most, and a frame of a link may have 1 MiB.
MOST_BYTES = 768 << 10


class WireError(Exception):
    """These bytes are nothing that a node of this version sends; the text is the reason."""


class Propose(NamedTuple):
    """To the leader: append these batches of commands (`command_codec`) to the log."""

    batches: tuple[bytes, ...]


class AppliedUpTo(NamedTuple):
    """To the leader: the sender has applied the log up to here."""

    index: int  # type: ignore[assignment]  # hides tuple.index


class InForceUpTo(NamedTuple):
    """From the leader: all members that run have applied the log up to here (CL-31)."""

    index: int  # type: ignore[assignment]  # hides tuple.index


class SnapshotPart(NamedTuple):
    """From the leader: part `number` of `total` of the state as of `mark`."""

    term: int
    mark: Mark
    number: int
    total: int
    data: bytes


class SnapshotTaken(NamedTuple):
    """To the leader: the parts of this snapshot up to `number` have arrived."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    number: int


#: The messages between two nodes.
Said = messages.ConsensusMessage | Propose | AppliedUpTo | InForceUpTo | SnapshotPart | SnapshotTaken

#: Checks a field that was unpacked, and returns its value.
FieldReader = Callable[[Any], Any]


def _of_type(wanted: type) -> FieldReader:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise WireError(f"{wanted.__name__} was expected, not {type(value).__name__}")
        return value

    return read


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise WireError("a number was expected that is not negative")
    return value


def _array(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or length is not None and len(value) != length:
        raise WireError("an array was expected" + ("" if length is None else f" of {length}"))
    return value


_text, _bytes, _boolean = _of_type(str), _of_type(bytes), _of_type(bool)


def _entries(value: Any) -> tuple[Entry, ...]:
    return tuple(
        Entry(_number(index), _number(term), _number(kind), _bytes(data))
        for index, term, kind, data in (_array(entry, 4) for entry in _array(value))
    )


def _mark(value: Any) -> Mark:
    index, term, members = _array(value, 3)
    kinds = [tuple(map(_text, _array(kind))) for kind in _array(members, 3)]
    return Mark(_number(index), _number(term), RaftMembers(*kinds))


def _parts(value: Any) -> tuple[bytes, ...]:
    return tuple(map(_bytes, _array(value)))


_READERS: dict[str, FieldReader] = {
    "str": _text,
    "int": _number,
    "bool": _boolean,
    "bytes": _bytes,
    "Mark": _mark,
    "tuple[Entry, ...]": _entries,
    "tuple[bytes, ...]": _parts,
}

#: The class of each number. A snapshot is not among those of the core: it travels in parts.
MESSAGES: dict[int, Any] = {
    1: messages.PreVote,
    2: messages.PreVoteAnswer,
    3: messages.Vote,
    4: messages.VoteAnswer,
    5: messages.Append,
    6: messages.AppendAnswer,
    7: messages.Heartbeat,
    8: messages.HeartbeatAnswer,
    9: messages.TimeoutNow,
    10: messages.Barrier,
    11: messages.BarrierAnswer,
    20: Propose,
    21: AppliedUpTo,
    22: InForceUpTo,
    23: SnapshotPart,
    24: SnapshotTaken,
}
_NUMBERS = {message: number for number, message in MESSAGES.items()}
#: How to read the fields of each class. The two ends of a link are not sent: they are known.
_FIELDS = {
    message: [
        (name, _READERS[hint.__forward_arg__])
        for name, hint in message.__annotations__.items()
        if name not in ("to", "sender")
    ]
    for message in MESSAGES.values()
}


def packed(said: Iterable[Said]) -> list[bytes]:
    """The messages to one node in order, each piece in `MOST_BYTES` or one message."""
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for each in said:
        fields = _FIELDS[type(each)]
        one = msgpack.packb([_NUMBERS[type(each)], *(getattr(each, name) for name, _ in fields)])
        if waiting and size + len(one) > MOST_BYTES:
            pieces.append(_joined(waiting))
            waiting, size = [], 0
        waiting.append(one)
        size += len(one)
    if waiting:
        pieces.append(_joined(waiting))
    return pieces


def _joined(messages: list[bytes]) -> bytes:
    packer = msgpack.Packer()
    return b"".join([packer.pack_array_header(1 + len(messages)), packer.pack(VERSION), *messages])


def received(data: bytes, sender: str, to: str) -> list[Said]:
    """The messages in `data`, which came from `sender`. Raises WireError."""
    try:
        version, *found = _array(msgpack.unpackb(data))
    except WireError:
        raise
    except Exception as error:
        # msgpack raises half a dozen types for bytes that are not msgpack.
        raise WireError(f"these bytes are not msgpack: {error}") from None
    if version != VERSION:
        raise WireError(f"version {version} of these messages is not known here")
    return [_message(each, sender, to) for each in found]


def _message(value: Any, sender: str, to: str) -> Said:
    number, *values = _array(value)
    kind = MESSAGES.get(number) if type(number) is int else None
    if kind is None:
        raise WireError(f"there is no message {number!r}")
    fields = _FIELDS[kind]
    if len(values) < len(fields):
        raise WireError(f"{kind.__name__} has {len(fields)} fields, not {len(values)}")
    given = {name: read(value) for (name, read), value in zip(fields, values)}
    if "sender" in kind._fields:
        given["sender"], given["to"] = sender, to
    said: Said = kind(**given)
    return said
