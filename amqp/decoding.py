"""Decodes the payload of a method frame (AB-38, AB-42). `method.py` describes its layout, and encodes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from .constants import COMMAND_INVALID, FRAME_ERROR, SYNTAX_ERROR
from .errors import AmqpError, binary_text
from .fields import FieldError, TooDeep, decode_table_at
from .method import NUMBERS, Method
from .methods import METHODS, BasicPublish

_BY_IDS: dict[bytes, type[Method]] = {struct.pack(">HH", *ids): method_class for ids, method_class in METHODS.items()}


def decode_method(payload: bytes, is_of_broker: bool = False) -> Method:
    """Decode the payload of a method frame, which must hold at least the 4 bytes of the class and method ids.

    `is_of_broker`: the broker has sent it. Its reply texts quote what a client has sent, which need not be UTF-8.

    Raises AmqpError (AB-38): 503 for unknown ids and for an unknown letter in a table, where RabbitMQ only drops the
    connection; 502 for a table nested too deeply; 501 `cannot decode …` with the method's ids for any other payload
    that does not fit the fields exactly; 501 `Malformed UTF-8 in shortstr` for methods without content.
    """
    method_class = _method_class_of(payload)
    arguments: list[Any] = []
    position = 4
    is_utf8 = True
    bit = 8  # which bit of the octet before `position` is read next; 8 if all of them have been read
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
                encoded = payload[start:position]
                try:
                    arguments.append(encoded.decode())
                except UnicodeDecodeError:
                    is_utf8 = False
                    arguments.append(encoded.decode("utf-8", "surrogateescape"))
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
    if not is_utf8 and not method_class.HAS_CONTENT and not is_of_broker:
        # RabbitMQ leaves out the method's ids here.
        raise AmqpError(FRAME_ERROR, "Malformed UTF-8 in shortstr")
    make: Callable[..., Method] = method_class
    return make(*arguments)


def _method_class_of(payload: bytes) -> type[Method]:
    method_class = _BY_IDS.get(payload[:4])
    if method_class is None:
        class_id, method_id = struct.unpack_from(">HH", payload)
        raise AmqpError(COMMAND_INVALID, f"unknown method ({class_id}, {method_id})", class_id, method_id)
    return method_class


def check_publish(payload: bytes) -> None:
    """Raise AmqpError 501 unless `payload`, which begins with the ids of basic.publish, can be decoded.

    Comparing the lengths is enough for that, and cheaper than decoding.
    """
    try:
        exchange_end = 7 + payload[6]
        if exchange_end + payload[exchange_end] + 2 == len(payload):
            return
    except IndexError:
        pass
    raise _cannot_decode(BasicPublish, payload)


def publish_fields(payload: bytes) -> tuple[str, str, bool, bool]:
    """Exchange, routing key, mandatory and immediate of a basic.publish that `check_publish` has accepted.

    Takes 0.5 µs, where `decode_method` takes 3. A client that gives each message a routing key of its own needs one
    call for each message.
    """
    exchange_end = 7 + payload[6]
    key_end = exchange_end + 1 + payload[exchange_end]
    flags = payload[key_end]
    return (
        payload[7:exchange_end].decode("utf-8", "surrogateescape"),
        payload[exchange_end + 1 : key_end].decode("utf-8", "surrogateescape"),
        flags & 1 == 1,
        flags & 2 == 2,
    )


def _cannot_decode(method_class: type[Method], payload: bytes) -> AmqpError:
    # A reply text holds 255 bytes, so more of the payload would be cut off anyway.
    text = f"cannot decode {binary_text(payload[4:260], as_string=False)}"
    return AmqpError(FRAME_ERROR, text, method_class.CLASS_ID, method_class.METHOD_ID)


def _bad_table(method_class: type[Method], payload: bytes, error: FieldError) -> AmqpError:
    if error.letter:
        return AmqpError(COMMAND_INVALID, f"field table: {error}", method_class.CLASS_ID, method_class.METHOD_ID)
    if isinstance(error, TooDeep):
        return AmqpError(SYNTAX_ERROR, f"field table: {error}", method_class.CLASS_ID, method_class.METHOD_ID)
    return _cannot_decode(method_class, payload)
