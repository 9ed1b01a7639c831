"""A method's payload, read (AB-38, AB-42): the other direction of :mod:`~warren.amqp.method`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from .constants import COMMAND_INVALID, FRAME_ERROR, SYNTAX_ERROR
from .errors import AmqpError, octets_text
from .fields import FieldError, decode_table_at
from .method import NUMBERS, Method
from .methods import METHODS, BasicPublish

_BY_IDS: dict[bytes, type[Method]] = {struct.pack(">HH", *ids): method_class for ids, method_class in METHODS.items()}


def decode_method(payload: bytes) -> Method:
    """The method a frame's payload holds (at least its 4 octets of ids).

    Raises AmqpError (AB-38): 503 for unknown ids and for an unknown letter in a table, where RabbitMQ only drops the
    connection; 502 for a table nested too deeply; 501 `cannot decode …` with the method's ids for anything else
    that does not fit its fields exactly; 501 `Malformed UTF-8 in shortstr` for methods without content.
    """
    method_class = method_class_of(payload)
    arguments: list[Any] = []
    position = 4
    is_utf8 = True
    bit = 8  # the next bit to read of the octet before `position`; 8 = none is left
    try:
        for kind in method_class.SIGNATURE:
            if kind == "b":
                if bit == 8:
                    bit = 0
                    position += 1
                arguments.append(payload[position - 1] >> bit & 1 == 1)
                bit += 1
                continue
            bit = 8
            if kind == "S":
                start = position + 1
                position = start + payload[position]
                octets = payload[start:position]
                try:
                    arguments.append(octets.decode())
                except UnicodeDecodeError:
                    is_utf8 = False
                    arguments.append(octets.decode("utf-8", "surrogateescape"))
            elif kind == "T":
                table, position = decode_table_at(payload, position)
                arguments.append(table)
            elif kind == "X":
                start = position + 4
                position = start + int.from_bytes(payload[position:start], "big")
                arguments.append(payload[start:position])
            else:
                number = NUMBERS[kind]
                arguments.append(number.unpack_from(payload, position)[0])
                position += number.size
    except (IndexError, struct.error):
        raise _cannot_decode(method_class, payload) from None
    except FieldError as error:
        raise _bad_table(method_class, payload, error) from None
    if position != len(payload):
        raise _cannot_decode(method_class, payload)
    if not is_utf8 and not method_class.HAS_CONTENT:
        # Without the method's ids, as RabbitMQ has it.
        raise AmqpError(FRAME_ERROR, "Malformed UTF-8 in shortstr")
    make: Callable[..., Method] = method_class
    return make(*arguments)


def method_class_of(payload: bytes) -> type[Method]:
    """The class of the method in `payload`. Raises AmqpError 503 if there is none with these ids (AB-38)."""
    method_class = _BY_IDS.get(payload[:4])
    if method_class is None:
        class_id, method_id = struct.unpack_from(">HH", payload)
        raise AmqpError(COMMAND_INVALID, f"unknown method ({class_id}, {method_id})", class_id, method_id)
    return method_class


def check_publish(payload: bytes) -> None:
    """Raise AmqpError 501 unless `payload` is a basic.publish that can be decoded, without decoding it."""
    try:
        exchange_end = 7 + payload[6]
        if exchange_end + payload[exchange_end] + 2 == len(payload):
            return
    except IndexError:
        pass
    raise _cannot_decode(BasicPublish, payload)


def _cannot_decode(method_class: type[Method], payload: bytes) -> AmqpError:
    # A reply text holds 255 octets, so the rest of a long payload need not be printed.
    text = f"cannot decode {octets_text(payload[4:260], as_string=False)}"
    return AmqpError(FRAME_ERROR, text, method_class.CLASS_ID, method_class.METHOD_ID)


def _bad_table(method_class: type[Method], payload: bytes, error: FieldError) -> AmqpError:
    if error.letter:
        return AmqpError(COMMAND_INVALID, f"field table: {error}", method_class.CLASS_ID, method_class.METHOD_ID)
    if "nested" in str(error):
        return AmqpError(SYNTAX_ERROR, f"field table: {error}", method_class.CLASS_ID, method_class.METHOD_ID)
    return _cannot_decode(method_class, payload)
