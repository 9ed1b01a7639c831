"""The events that a `FrameReader` makes of a client's input: tuples whose first element is their kind."""

from __future__ import annotations

from typing import Any

#: One or more basic.publish that share their fate: `(RUN, channel, methods, key, contents, body_bytes)`. `methods` is
#: the payload of their method frame, or a list of one payload for each; `key` is their fate (see `skimmer`).
RUN = "run"
#: Consecutive basic.ack on one channel: `(ACKS, channel, [(delivery_tag, multiple), ...])`.
ACKS = "acks"
#: Any other method: `(METHOD, channel, method)`.
METHOD = "method"
#: A heartbeat frame: `(HEARTBEAT, 0)`.
HEARTBEAT = "heartbeat"
#: A basic.publish whose body exceeds `max_body_size`: `(OVERSIZED, channel, method_payload, props, body_size)`.
OVERSIZED = "oversized"

#: One of the tuples above; the first element is its kind.
Event = tuple[Any, ...]
