"""`FrameMeanings`: what a complete frame means, for the path of the reader that reads frame by frame.

A method without content is an event. A method with content opens an `Assembly` on its channel, and the header frame
that follows there has the size of its body. The reader itself takes the body frames and completes the content, because
it must not copy them.
"""

from __future__ import annotations

import struct

from ..constants import (
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_ERROR,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    UNEXPECTED_FRAME,
)
from ..decoding import check_publish, decode_method
from ..errors import AmqpError, binary_text
from ..frames import END, HEAD
from ..method import Method
from ..methods import BasicAck, BasicPublish
from .assembly import Assembly
from .events import ACKS, HEARTBEAT, METHOD, OVERSIZED, Event
from .shapes import PUBLISH_IDS

HANDSHAKE = "handshake"
RUNNING = "running"
CLOSING = "closing"

_CONTENT_HEADER = struct.Struct(">HHQ")


class FrameMeanings:
    """The contents of one connection that are not complete, by channel, and the rules for the frames in between."""

    __slots__ = ("assemblies",)

    def __init__(self) -> None:
        self.assemblies: dict[int, Assembly] = {}

    def handle(self, kind: int, channel: int, payload: bytes, phase: str, max_body_size: int) -> Event | None:
        """The event of a frame, or None. Takes any frame except a body frame of a content whose header has arrived.

        Raises AmqpError if the frame may not come here.
        """
        if channel == 0:
            return self._handle_channel0(kind, payload, phase)
        if phase == CLOSING:
            return None
        if phase == HANDSHAKE:
            raise AmqpError(UNEXPECTED_FRAME, snippet(kind, payload))
        if not _is_known(kind, payload):
            raise AmqpError(FRAME_ERROR, f"{snippet(kind, payload)}: unknown_frame")
        if kind == FRAME_HEARTBEAT:
            raise AmqpError(UNEXPECTED_FRAME, snippet(kind, payload))
        assembly = self.assemblies.get(channel)
        if assembly is not None:
            if assembly.has_header:
                raise self.misplaced(channel, "expected content body, got non content body frame instead")
            return self._content_header(channel, assembly, kind, payload, max_body_size)
        if kind != FRAME_METHOD:
            raise AmqpError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        return self._method(channel, payload)

    def _handle_channel0(self, kind: int, payload: bytes, phase: str) -> Event | None:
        if kind == FRAME_METHOD and len(payload) >= 4:
            # This includes methods with content. All are refused on channel 0, so their content is not awaited.
            return METHOD, 0, _decode_on_channel0(payload)
        if phase == CLOSING:
            return None
        if not _is_known(kind, payload):
            raise AmqpError(FRAME_ERROR, f"{snippet(kind, payload)}: unknown_frame")
        if kind == FRAME_HEARTBEAT:
            return HEARTBEAT, 0
        raise AmqpError(UNEXPECTED_FRAME, snippet(kind, payload))

    def _method(self, channel: int, payload: bytes) -> Event | None:
        if payload.startswith(PUBLISH_IDS):
            check_publish(payload)
            self.assemblies[channel] = Assembly(payload, BasicPublish, None)
            return None
        method = decode_method(payload)
        if method.HAS_CONTENT:
            self.assemblies[channel] = Assembly(payload, type(method), method)
            return None
        if isinstance(method, BasicAck):
            return ACKS, channel, [(method.delivery_tag, method.multiple)]
        return METHOD, channel, method

    def _content_header(
        self, channel: int, assembly: Assembly, kind: int, payload: bytes, max_body_size: int
    ) -> Event | None:
        if kind == FRAME_HEADER:
            class_id, weight, size = _CONTENT_HEADER.unpack_from(payload)
        if kind != FRAME_HEADER or weight != 0:
            # RabbitMQ recognises a content header by its frame type and a weight of 0, not by the type alone.
            text = f"expected content header for class {CLASS_BASIC}, got non content header frame instead"
            raise self.misplaced(channel, text)
        if class_id != CLASS_BASIC:
            text = f"expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            raise self.misplaced(channel, text)
        assembly.has_header = True
        assembly.size = assembly.remaining = size
        assembly.props = payload[12:]
        oversized = size > max_body_size
        if assembly.method is None and not oversized:
            assembly.gathered = bytearray(HEAD.pack(FRAME_HEADER, channel, len(payload)) + payload + END)
        if assembly.method is None and oversized:
            return OVERSIZED, channel, assembly.method_payload, assembly.props, size
        return None

    def misplaced(self, channel: int, text: str) -> AmqpError:
        """The error for a frame that does not continue the content on its channel, which is given up."""
        method = self.assemblies.pop(channel).method_class
        return AmqpError(UNEXPECTED_FRAME, text, method.CLASS_ID, method.METHOD_ID)


def _decode_on_channel0(payload: bytes) -> Method:
    try:
        return decode_method(payload)
    except AmqpError as error:
        # On channel 0 RabbitMQ 3.10.8 gives the ids of the method in every error.
        error.class_id, error.method_id = struct.unpack_from(">HH", payload)
        raise


def _is_known(kind: int, payload: bytes) -> bool:
    """Whether the frame type exists and the payload has a length that this type allows."""
    if kind == FRAME_METHOD:
        return len(payload) >= 4
    if kind == FRAME_HEADER:
        return len(payload) >= 12
    if kind == FRAME_HEARTBEAT:
        return not payload
    return kind == FRAME_BODY


def snippet(kind: int, payload: bytes) -> str:
    """The frame as RabbitMQ describes it in reply texts."""
    which = "all" if len(payload) <= 16 else "first 16"
    return f"type {kind}, {which} octets = {binary_text(payload[:16])}"
