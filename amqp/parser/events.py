"""The events that a `FrameReader` makes of a client's input: tuples whose first element is their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

#: One or more basic.publish that share their fate: `(RUN, channel, methods, key, contents, body_bytes, expirations)`.
#: `methods` is the payload of their method frame, or a list of one payload for each; `key` is their fate and
#: `expirations` the text of their expiration, or a list of one for each (see `skimmer`).
RUN = "run"
#: Consecutive basic.ack on one channel: `(ACKS, channel, [(delivery_tag, multiple), ...])`.
ACKS = "acks"
#: Any other method: `(METHOD, channel, method)`.
METHOD = "method"
#: A heartbeat frame: `(HEARTBEAT, 0)`.
HEARTBEAT = "heartbeat"
#: A basic.publish whose body exceeds `max_body_size`: `(OVERSIZED, channel, method_payload, props, body_size)`.
OVERSIZED = "oversized"
#: Frames that have completed nothing yet, such as parts of a body, or that are skipped: `(PARTS, 0)`. It comes after
#: many of them, so that the caller can let others have their turn.
PARTS = "parts"

#: One of the tuples above; the first element is its kind.
Event = tuple[Any, ...]

#: The payload of the method frame of publishes, or one for each.
Payloads = Union[bytes, "Sequence[bytes]"]

#: The text of the expiration of messages as it stands on the wire, None without one; or a list of one for each message.
Expirations = Union[bytes, None, "list[bytes | None]"]
