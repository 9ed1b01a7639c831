"""Commands as bytes, for the log and for other nodes.

    command   msgpack [number, field, ...]; the numbers are those of `COMMANDS`, the fields those of the class
    batch     msgpack [node, incarnation, serial of the first command, [command, ...]]

Texts, whole numbers, booleans, None and bytes are msgpack's own, and tuples are its arrays. A row or a record is an
extension type whose data is the msgpack array of its fields, without address and group of a queue and the creator
of an exchange. A table is an extension type whose data is an encoded field table.

The bytes stay on disks and are read by other versions, so the meaning of a number never changes. A field may be added
at the end: a command without it gets the default, and an older version ignores it.

A batch has what one node proposed in one turn. Its node, incarnation and serials identify the commands, so a batch that
is proposed twice takes effect once (CL-25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from ...actors.metadata.state import commands
from ...actors.metadata.state.commands import Command
from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, Table, decode_table_at, encode_table
from ...definitions import records
from ...routing.rows import Binding, ExchangeRow, Member, QueueRow
from .digest import CompareDigest

#: The class of each number. 255 and above are free for extensions.
COMMANDS: dict[int, Any] = {
    1: commands.CreateVhost,
    2: commands.DeleteVhost,
    3: commands.DeclareExchange,
    4: commands.DeleteExchange,
    5: commands.Bind,
    6: commands.Unbind,
    7: commands.TrimBindings,
    8: commands.TrimVhost,
    9: commands.DeclareQueue,
    10: commands.DeleteQueue,
    11: commands.SetQueueStates,
    12: commands.EndConnection,
    13: commands.PutRecords,
    14: commands.ChangeUser,
    15: commands.RemoveRecords,
    16: commands.AddNode,
    17: commands.RemoveNode,
    18: commands.ChangeNodes,
    19: commands.RestartQueue,
    20: CompareDigest,
    21: commands.EnableFeatures,
    22: commands.SetMaintenance,
    23: commands.AddLearner,
    24: commands.RemoveLearner,
    25: commands.AdmitToRing,
    26: commands.EvictFromRings,
    27: commands.TransferRing,
    28: commands.LoseMember,
    29: commands.ForceRing,
    30: commands.ReplaceMembers,
}

#: The extension type of a field table.
TABLE = 0
#: The class of each other extension type.
VALUES: dict[int, Any] = {
    1: ExchangeRow,
    2: QueueRow,
    3: Binding,
    4: records.VhostProperties,
    5: records.User,
    6: records.Permission,
    7: records.TopicPermission,
    8: records.Parameter,
    9: records.GlobalParameter,
    10: records.Policy,
    11: records.Node,
    12: records.EnabledFeature,
    13: Member,
}

_NUMBERS = {command: number for number, command in COMMANDS.items()}
_CODES = {value: code for code, value in VALUES.items()}
_FIELDS = {value: [each.name for each in fields(value)] for value in _CODES if value is not Member}
_FIELDS[Member] = list(Member._fields)
# A state sets these fields itself when it applies a declaration.
_FIELDS[QueueRow].remove("address")
_FIELDS[QueueRow].remove("group")
_FIELDS[ExchangeRow].remove("creator")


class UnknownCommand(Exception):
    """The log has a command that this version does not have."""


class CommandBatch(NamedTuple):
    """Commands that one node proposed in one turn; the serial of each is one more than that of the one before."""

    node: str
    incarnation: str
    first: int
    commands: Sequence[bytes]


def pack_command(command: Command | CompareDigest) -> bytes:
    """Encode a command. Raises AmqpError 406 for arguments that cannot be encoded as a field table."""
    return _pack([_NUMBERS[type(command)], *command])


def unpack_command(data: bytes) -> Command | CompareDigest:
    """Decode a command. Raises UnknownCommand, and ValueError for other bytes that are no command."""
    try:
        number, *values = _unpack(data)
        command = COMMANDS.get(number)
        if command is None:
            raise UnknownCommand(f"the log has a command of kind {number}, which this version of warren does not know")
        known: Command | CompareDigest = command(*values[: len(command._fields)])
    except TypeError as error:  # no array, or too few fields, in the command or in a row of it
        raise ValueError(f"these bytes are no command: {error}") from None
    return known


def pack_batch(batch: CommandBatch) -> bytes:
    packed: bytes = msgpack.packb([batch.node, batch.incarnation, batch.first, list(batch.commands)])
    return packed


def unpack_batch(data: bytes) -> CommandBatch:
    """Decode a batch. Raises ValueError for bytes that are no batch."""
    try:
        node, incarnation, first, packed = msgpack.unpackb(data)
        are_texts = isinstance(node, str) and isinstance(incarnation, str)
        is_batch = are_texts and type(first) is int and all(isinstance(each, bytes) for each in packed)
    except TypeError:  # no array
        is_batch = False
    if not is_batch:
        raise ValueError("these bytes are no batch of commands")
    return CommandBatch(node, incarnation, first, packed)


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, default=_extension, strict_types=True, unicode_errors="surrogateescape")
    return packed


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_value, use_list=False, unicode_errors="surrogateescape")


def _extension(value: Any) -> Any:
    """The value that msgpack packs in place of one of a type that it does not support."""
    if isinstance(value, Table):
        try:
            return msgpack.ExtType(TABLE, encode_table(value))
        except FieldError as error:
            raise AmqpError(PRECONDITION_FAILED, f"arguments cannot be stored: {error}") from None
    code = _CODES.get(type(value))
    if code is None:
        return list(value)
    return msgpack.ExtType(code, _pack([getattr(value, name) for name in _FIELDS[type(value)]]))


def _value(code: int, data: bytes) -> Any:
    if code == TABLE:
        return decode_table_at(data, 0)[0]
    value = VALUES.get(code)
    if value is None:
        raise UnknownCommand(f"the log has a value of type {code}, which this version of warren does not know")
    given = dict(zip(_FIELDS[value], _unpack(data)))
    if value is QueueRow:
        given["address"] = None
    return value(**given)
