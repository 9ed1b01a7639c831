"""How values cross a link: each field of a message has a codec, which checks it on both sides.

A codec turns a value into what msgpack can write (`encode`) and back (`decode`). Neither accepts anything but its own
kind of value, so what arrives has the type that the contract promises, whatever the peer sends. `encode` raises
NotCarried and `decode` raises CodecError; no input leads to another exception.

Three kinds of value need more than msgpack has:

- **Contents** of messages are never re-encoded. `RAW_LIST` puts them behind the msgpack data as they are, and the
  receiver cuts them out of its input once. In the msgpack data stands only how long they are.
- **Addresses** name their system by one byte when it is that of the sender or of the receiver, as nearly always.
- **Records** (`record`) are values of a class, as an array of its fields. A field that a newer version has added behind
  the others is ignored by an older one, which does not have it, and has its default when an older one sends.

A record class that crosses, like every message, is listed; nothing in a frame names a class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thespian.actors import ActorAddress

from ....runtime.exit_reason import ExitKind, ExitReason
from ....runtime.system.address import LoopAddress, system_of
from ....store.messages.packed_contents import cut
from .frames import Buffer

_INTEGERS, _BYTES = {int}, {bytes}

INT_MIN, INT_MAX = -(2**63), 2**64 - 1

#: How deep plain values may be nested.
MAX_DEPTH = 32


class CodecError(Exception):
    """A value that has arrived is none that the codec can decode. The text is for the log."""


class NotCarried(TypeError):
    """A value cannot be sent to another node. The sender made a mistake."""


class Outgoing:
    """What the codecs of one message need of the link on the way out."""

    __slots__ = ("own", "peer", "raw")

    def __init__(self, own: str, peer: str) -> None:
        self.own, self.peer = own, peer
        #: What goes behind the msgpack data, as it is.
        self.raw: list[Buffer] = []


class Incoming:
    """What the codecs of one frame need of the link on the way in.

    Behind the msgpack data, raw bytes stand in `data` from `at` to `end`.
    """

    __slots__ = ("at", "data", "end", "own", "peer")

    def __init__(self, own: str, peer: str, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.own, self.peer = own, peer
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def skip(self, size: Any) -> int:
        """Pass the next `size` raw bytes; returns where in `data` they begin."""
        at = self.at
        if type(size) is not int or not 0 <= size <= self.end - at:
            raise CodecError(f"{size!r} raw bytes where {self.end - at} are left")
        self.at = at + size
        return at

    def skip_each(self, sizes: Any) -> int:
        """Pass the next raw bytes, which are pieces of these sizes; returns where in `data` they begin."""
        if type(sizes) is not list or not set(map(type, sizes)) <= _INTEGERS or (sizes and min(sizes) < 0):
            raise CodecError("no sizes of contents")
        return self.skip(sum(sizes))

    def cut_each(self, sizes: Any) -> list[bytes]:
        """The next raw bytes, in pieces of these sizes."""
        return cut(self.data, self.skip_each(sizes), len(sizes), sizes)


class Codec:
    """Base class of the codecs."""

    #: The value crosses as it is; the type alone is checked.
    types: tuple[type, ...] = ()

    def encode(self, value: Any, out: Outgoing) -> Any:
        raise NotImplementedError

    def decode(self, value: Any, incoming: Incoming) -> Any:
        raise NotImplementedError


class Scalar(Codec):
    """A value that msgpack has."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) not in self.types:
            raise NotCarried(f"{value!r} is not {self.names}")
        return value

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) not in self.types:
            raise CodecError(f"a {type(value).__name__} where {self.names} is expected")
        return value

    @property
    def names(self) -> str:
        return " or ".join(kind.__name__ for kind in self.types)


class _Integer(Scalar):
    """An integer of 64 bits; msgpack refuses larger ones."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not int or not INT_MIN <= value <= INT_MAX:
            raise NotCarried(f"{value!r} is no integer of 64 bits")
        return value


TEXT = Scalar(str)
INTEGER: Codec = _Integer(int)
FLOAT = Scalar(float)
BOOLEAN = Scalar(bool)
BYTES = Scalar(bytes)
NONE = Scalar(type(None))


class Optional(Codec):
    """None, or a value of `inner`."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner

    def encode(self, value: Any, out: Outgoing) -> Any:
        return None if value is None else self._inner.encode(value, out)

    def decode(self, value: Any, incoming: Incoming) -> Any:
        return None if value is None else self._inner.decode(value, incoming)


class Each(Codec):
    """A list, or another collection, of values of `inner`."""

    def __init__(self, inner: Codec, made: Callable[[list[Any]], Any] | type = list) -> None:
        self._inner = inner
        self._made = made
        self._type: Any = made if isinstance(made, type) else None

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not self._type:
            raise NotCarried(f"{value!r} is no {self._type.__name__ if self._type else 'collection'}")
        encode = self._inner.encode
        # Sets have no order of their own; a fixed one keeps a simulation the same.
        items = sorted(value) if self._type in (set, frozenset) else value
        return [encode(item, out) for item in items]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list:
            raise CodecError(f"a {type(value).__name__} where an array is expected")
        decode = self._inner.decode
        items = [decode(item, incoming) for item in value]
        if self._type is list:
            return items
        try:
            return self._made(items)
        except TypeError:
            raise CodecError("a value in a set that no set can have") from None


class Parts(Codec):
    """A tuple of fixed length, with a codec for each value."""

    def __init__(self, *inner: Codec) -> None:
        self._inner = inner

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not tuple or len(value) != len(self._inner):
            raise NotCarried(f"{value!r} is no tuple of {len(self._inner)}")
        return [codec.encode(item, out) for codec, item in zip(self._inner, value)]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) != len(self._inner):
            raise CodecError(f"no array of {len(self._inner)} values")
        return tuple([codec.decode(item, incoming) for codec, item in zip(self._inner, value)])


class RecordCodec(Codec):
    """A value of `made`, whose fields have these codecs, in the order of its constructor's arguments.

    `fields` returns the values of the fields, for a NamedTuple the tuple itself. Fields that the last `len(defaults)`
    codecs describe may be missing.
    """

    def __init__(self, made: Callable[..., Any], *codecs: Codec, defaults: tuple[Any, ...] = ()) -> None:
        self._made = made
        self._codecs = codecs
        self._names = getattr(made, "_fields", ())
        if len(self._names) != len(codecs):
            raise TypeError(f"{made} has the fields {self._names}, and {len(codecs)} codecs are given")
        self._defaults = defaults
        self._needed = len(codecs) - len(defaults)

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not self._made:
            raise NotCarried(f"{value!r} is no {getattr(self._made, '__name__', self._made)}")
        return [codec.encode(getattr(value, name), out) for codec, name in zip(self._codecs, self._names)]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) < self._needed:
            raise CodecError(f"no array of at least {self._needed} values")
        fields = [codec.decode(item, incoming) for codec, item in zip(self._codecs, value)]
        missing = len(self._codecs) - len(fields)
        if missing:
            fields += self._defaults[len(self._defaults) - missing :]
        try:
            return self._made(*fields)
        except (TypeError, ValueError) as error:
            raise CodecError(f"no {getattr(self._made, '__name__', 'record')}: {error}") from None


class _RawList(Codec):
    """A list of `bytes`, crossing as they are behind the msgpack data."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not list or not set(map(type, value)) <= _BYTES:
            raise NotCarried("a value that is no list of bytes")
        out.raw += value
        return list(map(len, value))

    def decode(self, value: Any, incoming: Incoming) -> Any:
        return incoming.cut_each(value)


RAW_LIST: Codec = _RawList()

#: How an address names its system: that of the sender, that of the receiver, or by name.
_SENDERS, _RECEIVERS, _OTHER = 0, 1, 2

#: The number of the worker in every address. A node has one worker; the number leaves room for several (CL-125).
WORKER = 0


class _AddressCodec(Codec):
    """An address: [whose system, worker, local id], and the name of the system if it is another one's."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if not isinstance(value, ActorAddress):
            raise NotCarried(f"{value!r} is no address")
        details = str(value.addressDetails)
        system = system_of(value)
        local = details[len(system) + 1 :]
        if system == out.own:
            return [_SENDERS, WORKER, local]
        if system == out.peer:
            return [_RECEIVERS, WORKER, local]
        return [_OTHER, WORKER, local, system]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        if type(value) is not list or len(value) < 3 or type(value[2]) is not str:
            raise CodecError("no address")
        whose = value[0]
        if whose == _SENDERS:
            system = incoming.peer
        elif whose == _RECEIVERS:
            system = incoming.own
        elif whose == _OTHER and len(value) > 3 and type(value[3]) is str:
            system = value[3]
        else:
            raise CodecError("an address of no system")
        return LoopAddress(f"{system}/{value[2]}")


ADDRESS: Codec = _AddressCodec()


class _Reason(Codec):
    """An `ExitReason`."""

    def encode(self, value: Any, out: Outgoing) -> Any:
        if type(value) is not ExitReason:
            raise NotCarried(f"{value!r} is no reason of an end")
        return [value.kind.value, value.text]

    def decode(self, value: Any, incoming: Incoming) -> Any:
        try:
            kind, text = value
            reason = ExitReason(ExitKind(kind), text)
        except (TypeError, ValueError):
            raise CodecError("no reason of an end") from None
        TEXT.decode(text, incoming)
        return reason


EXIT_REASON: Codec = _Reason()

#: The marks of collections in plain values.
_LIST, _TUPLE, _DICT = 0, 1, 2


class _Plain(Codec):
    """Any value of None, bool, int, float, str, bytes, and lists, tuples and dicts of these.

    For listings and other values whose shape only people read. Fields that code acts on have codecs of their own.
    """

    def encode(self, value: Any, out: Outgoing) -> Any:
        return self._encode(value, MAX_DEPTH)

    def _encode(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes):
            return value
        if kind is int:
            return INTEGER.encode(value, _NOWHERE)
        if not depth:
            raise NotCarried("a value that is nested too deeply")
        if kind is list or kind is tuple:
            return [_LIST if kind is list else _TUPLE, *[self._encode(item, depth - 1) for item in value]]
        if kind is dict:
            flat = [self._encode(item, depth - 1) for pair in value.items() for item in pair]
            return [_DICT, *flat]
        raise NotCarried(f"a {kind.__name__}, which is no plain value")

    def decode(self, value: Any, incoming: Incoming) -> Any:
        return self._decode(value, MAX_DEPTH)

    def _decode(self, value: Any, depth: int) -> Any:
        if value is None or type(value) in (bool, int, float, str, bytes):
            return value
        if type(value) is not list or not value or not depth:
            raise CodecError("no plain value")
        mark, *items = [value[0], *[self._decode(item, depth - 1) for item in value[1:]]]
        if mark == _LIST:
            return items
        if mark == _TUPLE:
            return tuple(items)
        if mark != _DICT or len(items) % 2:
            raise CodecError("no plain collection")
        try:
            return dict(zip(items[::2], items[1::2]))
        except TypeError:
            raise CodecError("a key that no dict can have") from None


#: Encoding an integer needs nothing of a link.
_NOWHERE = Outgoing("", "")

PLAIN: Codec = _Plain()
