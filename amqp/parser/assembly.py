"""`Assembly`: the part of a content that has arrived, while its frames come in on a channel."""

from __future__ import annotations

from ..method import Method


class Assembly:
    """A content of which not all frames have arrived on its channel yet."""

    __slots__ = (
        "gathered",
        "has_header",
        "is_irregular",
        "method",
        "method_class",
        "method_payload",
        "props",
        "remaining",
        "size",
    )

    def __init__(self, method_payload: bytes, method_class: type[Method], method: Method | None) -> None:
        self.method_payload = method_payload
        self.method_class = method_class
        self.method = method  # None for basic.publish, which the channel decodes
        self.has_header = False
        self.props = b""
        self.size = 0
        self.remaining = 0
        self.is_irregular = False  # its frames were not as announced, so it is not received in place
        # The frames so far. None if the content is not kept, and while it is received in place.
        self.gathered: bytearray | bytes | None = None
