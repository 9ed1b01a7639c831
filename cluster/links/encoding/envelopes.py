"""Encodes and decodes the body of a SEND frame: messages between actors.

    bytes 0 to 3    size of the msgpack data
    msgpack data    an array of messages
    the rest        raw bytes, in the order in which the messages refer to them

A message is an array: its number, the local ids of receiver and sender, and its fields. The runtime's own messages have
numbers below 10:

| number | message | fields |
|---|---|---|
| 0 | ask | reference of the ask, number of the message, its fields |
| 1 | answer | reference, number of the message that was asked, 1 and the value, or 0 and the error |
| 2 | forget | reference: the asker no longer waits |
| 3 | monitor | reference |
| 4 | demonitor | reference |
| 5 | down | reference, why the process ended |

An answer is encoded by the codec of the message that it answers. The side that is asked therefore keeps which message
that was, as long as the ask is open.
"""

from __future__ import annotations

import logging
import struct
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
from thespian.actors import ActorAddress

from ....runtime.errors import ProcessError, UnknownMessage
from ....runtime.system.address import LoopAddress
from .codecs import EXIT_REASON, CodecError, Incoming, NotCarried, Outgoing
from .frames import Buffer
from .registry import Registry

log = logging.getLogger("warren.links")

ASK, ANSWER, FORGET, MONITOR, DEMONITOR, DOWN = range(6)

_SHORT = {"$forget": FORGET, "$monitor": MONITOR, "$demonitor": DEMONITOR}
_SHORT_NAMES = {number: name for name, number in _SHORT.items()}

_size = struct.Struct(">I")

#: Addresses of the processes of either side, and pairs of them, that are kept, so that equal ones are made once.
KEPT_ADDRESSES = 4_096


#: One message on its way out: its lane, the msgpack data, the raw bytes behind it, and the bytes of both.
Encoded = tuple[str, bytes, list[Buffer], int]

#: One message that has arrived: sender, receiver, message. Tuples, because there is one for each message.
Decoded = tuple[ActorAddress, ActorAddress, tuple[Any, ...]]

_NOTHING: list[Buffer] = []


class Unknown(NamedTuple):
    """A message with a number that this version does not have. `ref` is that of the ask, None if it was not asked."""

    number: int
    by: str
    to: str
    ref: int | None


class Envelopes:
    """Encodes and decodes the messages of one session between the systems `own` and `peer`."""

    def __init__(self, registry: Registry, own: str, peer: str) -> None:
        self._registry = registry
        #: Used again for each message, so that none costs an object of its own.
        self._out = Outgoing(own, peer)
        self._own, self._peer = own, peer
        self._own_prefix, self._peer_prefix = f"{own}/", f"{peer}/"
        self._pack = msgpack.Packer(unicode_errors="surrogateescape", autoreset=True).pack
        #: By local id of the asker and reference: the entry of the message that a process of the peer has asked here.
        self._asked: dict[tuple[str, int], Any] = {}
        self._senders: dict[str, LoopAddress] = {}
        self._targets: dict[str, LoopAddress] = {}
        #: By the addresses of receiver and sender: their local ids, and the lane between them.
        self._ways: dict[tuple[str, str], tuple[str, str, str]] = {}

    # -- out ---------------------------------------------------------------------------------------

    def encode(self, sender: ActorAddress, target: ActorAddress, message: Any) -> Encoded:
        """Encode a message. Raises NotCarried if it is not listed or has a field of a wrong type."""
        details = target.addressDetails, sender.addressDetails
        to, by, lane = self._ways.get(details) or self._way(*details)
        out = self._out
        if out.raw:
            out.raw = []  # drop what an earlier message left that could not be encoded
        name = message[0] if type(message) is tuple and message else None
        if name == "ask":
            entry = self._registry.entry(message[2])
            fields = [ASK, to, by, message[1], entry.number, *entry.encode(message[2], out)]
        elif name == "$answer":
            fields = self._answer(to, by, message, out)
        elif name == "$down":
            fields = [DOWN, to, by, message[1], EXIT_REASON.encode(message[2], out)]
        elif name in _SHORT:
            fields = [_SHORT[name], to, by, message[1]]
        else:
            entry = self._registry.entry(message)
            fields = [entry.number, to, by, *entry.encode(message, out)]
        try:
            packed: bytes = self._pack(fields)
        except OverflowError:
            raise NotCarried(f"the message {name} has an integer of more than 64 bits") from None
        except (TypeError, ValueError) as error:
            raise NotCarried(f"the message {name} cannot be sent to another node: {error}") from None
        raw = out.raw
        if not raw:
            return (lane, packed, _NOTHING, len(packed))
        out.raw = []
        return (lane, packed, raw, len(packed) + sum(map(len, raw)))

    def is_withdrawn(self, asker: ActorAddress, ref: int) -> bool:
        """Whether the ask of this process on the other node was withdrawn, so that nobody waits for the answer. An ask
        and its withdrawal may have come in one frame.
        """
        return (asker.addressDetails.removeprefix(self._peer_prefix), ref) not in self._asked

    def _answer(self, to: str, by: str, message: tuple[Any, ...], out: Outgoing) -> list[Any]:
        _, ref, ok, value = message
        entry = self._asked.pop((to, ref))
        if ok:
            try:
                return [ANSWER, to, by, ref, entry.number, 1, entry.answer.encode(value, out)]
            except NotCarried as error:
                # The process here has made the mistake, but raising there would leave the asker without an answer. So
                # the mistake is logged, and the asker gets an error.
                out.raw.clear()
                log.error(
                    "%s/%s: the answer to %s cannot be sent to another node: %s", self._own, by, entry.name, error
                )
                value = ProcessError(f"the answer to {entry.name} cannot be sent to another node: {error}")
        return [ANSWER, to, by, ref, entry.number, 0, self._registry.errors.encode(value, out)]

    def unknown_answer(self, unknown: Unknown) -> Encoded:
        """The answer to an ask whose message this version does not have."""
        error = UnknownMessage(f"{self._own} does not know the message with the number {unknown.number}")
        fields = [ANSWER, unknown.by, unknown.to, unknown.ref, unknown.number, 0]
        packed: bytes = self._pack([*fields, self._registry.errors.encode(error, Outgoing(self._own, self._peer))])
        return (self._registry.lane(unknown.to, unknown.by), packed, _NOTHING, len(packed))

    def _way(self, target: str, sender: str) -> tuple[str, str, str]:
        if len(self._ways) > KEPT_ADDRESSES:
            self._ways.clear()
        to, by = target.removeprefix(self._peer_prefix), sender.removeprefix(self._own_prefix)
        way = self._ways[target, sender] = to, by, self._registry.lane(by, to)
        return way

    # -- in ----------------------------------------------------------------------------------------

    def decode(self, data: bytes, at: int = 0, end: int | None = None) -> list[Decoded | Unknown]:
        """The messages of one frame, whose body is in `data` from `at` to `end`.

        Raises CodecError; then none of them counts.
        """
        end = len(data) if end is None else end
        try:
            (size,) = _size.unpack_from(data, at)
            begin = at + 4 + size
            packed = data[at + 4 : begin]
            items = msgpack.unpackb(packed, unicode_errors="surrogateescape", strict_map_key=False)
        except Exception as error:
            # msgpack raises errors of a dozen kinds, among them ones of Python itself such as UnicodeDecodeError.
            raise CodecError(f"no msgpack data ({type(error).__name__})") from None
        if begin > end or type(items) is not list:
            raise CodecError("no array of messages")
        incoming = Incoming(self._own, self._peer, data, begin, end)
        return [self._message(item, incoming) for item in items]

    def _message(self, item: Any, incoming: Incoming) -> Decoded | Unknown:
        try:
            number, to, by, *fields = item
        except (TypeError, ValueError):
            raise CodecError("no message") from None
        if type(number) is not int or type(to) is not str or type(by) is not str:
            raise CodecError("a message without number, receiver and sender")
        entry = self._registry.by_number.get(number)
        if entry is None and number > DOWN:
            return Unknown(number, by, to, None)
        sender = self._senders.get(by) or self._kept(self._senders, self._peer_prefix, by)
        target = self._targets.get(to) or self._kept(self._targets, self._own_prefix, to)
        if entry is not None:
            return (sender, target, entry.decode(fields, incoming))
        if not fields or type(fields[0]) is not int:
            raise CodecError("a message of the runtime without a reference")
        if number == ASK and len(fields) > 1 and type(fields[1]) is int and fields[1] not in self._registry.by_number:
            return Unknown(fields[1], by, to, fields[0])
        return (sender, target, self._runtime_message(number, by, fields, incoming))

    def _runtime_message(self, number: int, by: str, fields: list[Any], incoming: Incoming) -> tuple[Any, ...]:
        ref = fields[0]
        if number in _SHORT_NAMES:
            if number == FORGET:
                self._asked.pop((by, ref), None)
            return (_SHORT_NAMES[number], ref)
        if len(fields) < 2:
            raise CodecError("a message of the runtime that ends too early")
        if number == DOWN:
            return ("$down", ref, EXIT_REASON.decode(fields[1], incoming))
        asked = self._registry.by_number.get(fields[1]) if type(fields[1]) is int else None
        if number == ASK:
            if asked is None:
                raise CodecError("an ask without a message")
            message = asked.decode(fields[2:], incoming)
            self._asked[by, ref] = asked
            return ("ask", ref, message)
        if asked is None or len(fields) < 4:
            raise CodecError("an answer to nothing that was asked")
        if fields[2]:
            return ("$answer", ref, True, asked.answer.decode(fields[3], incoming))
        return ("$answer", ref, False, self._registry.errors.decode(fields[3], incoming))

    def _kept(self, kept: dict[str, LoopAddress], prefix: str, local_id: str) -> LoopAddress:
        if len(kept) > KEPT_ADDRESSES:
            kept.clear()
        made = kept[local_id] = LoopAddress(prefix + local_id)
        return made


def array_header(count: int) -> bytes:
    """The msgpack head of an array of `count` values."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdd" + _size.pack(count)


def begin_size(count: int) -> int:
    """Bytes of a body with `count` messages that belong to none of them."""
    return 4 + len(array_header(count))


def body(encoded: list[Encoded], begin: bytes = b"") -> list[Buffer]:
    """The body of a frame with these messages, as buffers that follow each other. `begin` stands before it."""
    head = array_header(len(encoded))
    packed = encoded[0][1] if len(encoded) == 1 else b"".join([one[1] for one in encoded])
    buffers: list[Buffer] = [b"".join((begin, _size.pack(len(head) + len(packed)), head, packed))]
    for one in encoded:
        if one[2]:
            buffers += one[2]
    return buffers
