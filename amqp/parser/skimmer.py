"""The property skimmer: finds the part of a message's properties that decides its fate, without decoding them.

A message's *fate* is all that the broker decides from its properties: which queues get it, whether it is stored on
disk, whether it is refused. A run holds messages that share their fate. The fate follows from the delivery mode, the
priority, the user-id that the channel must check, a reply-to that the channel replaces, the headers CC and BCC, and
from an expiration of 0. A message-id, a timestamp, a correlation-id or a trace header decides nothing and therefore
ends no run. Another expiration decides when the message expires and nothing else: a run has one for each message.

`fate(props)` maps property bytes to a key and an expiration. Messages with equal keys have the same fate, and their
property bytes are sound: `decode_properties` reads them. There are two kinds of keys:

    b"Hm\\x02"          plain: the present properties that decide, and their values ("H": there are headers, "z": the
                        expiration is 0)
    b"!" + props        special: the properties are unsound, or the channel has to decode or rewrite them. Only a
                        message with the same property bytes shares such a key.

A headers exchange routes by headers that decide nothing elsewhere. The skimmer has no access to exchanges; the channel
looks at `has_headers(key)` when a message can reach a headers exchange, and then treats each message by itself.

How it works: for each value of the property flags one function is generated once, which walks over the values by their
lengths. It takes 0.5 µs for an id and a timestamp, and 2 to 3 µs for Celery's seven properties and eight headers,
where decoding takes ten times as long (`bench/reader.py`). `slow_fate` is the obvious twin that decodes everything; a
property test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

from ...seams import seam
from ..encoded_table import Unsound, check_entries
from ..errors import AmqpError
from ..fields import decode_table_at
from ..properties import (
    FLAG_APP_ID,
    FLAG_CLUSTER_ID,
    FLAG_CONTENT_ENCODING,
    FLAG_CONTENT_TYPE,
    FLAG_CORRELATION_ID,
    FLAG_DELIVERY_MODE,
    FLAG_EXPIRATION,
    FLAG_HEADERS,
    FLAG_MESSAGE_ID,
    FLAG_PRIORITY,
    FLAG_REPLY_TO,
    FLAG_TIMESTAMP,
    FLAG_TYPE,
    FLAG_USER_ID,
    decode_properties,
)

#: The key of a message, and its expiration as it stands on the wire; None: it has none.
Fate = tuple[bytes, "bytes | None"]

#: First byte of a key that belongs to one value of the property bytes alone.
SPECIAL = b"!"
#: The most functions that are generated. Clients use a handful; one that uses all 65,536 values of the flags would have
#: the broker keep 90 MB of functions, so any more values are decoded.
SKIMMERS_MAX = 1024
#: The reply-to that the channel replaces by a name of its own (AB-140).
DIRECT_REPLY_TO = b"amq.rabbitmq.reply-to"
#: The headers that make a key special, as their names stand in a table on the wire. The same bytes inside a value do so
#: too, which costs time and changes nothing else.
_SENDER_SELECTED = (b"\x02CC", b"\x03BCC")


@seam("the fate of a message")
def fate(props: bytes) -> Fate:
    """The key of a message with these property bytes, and the text of its expiration; never raises.

    With a special key the expiration is None, because the channel then decodes all properties anyway.
    """
    try:
        return _SKIMMERS[props[:2]](props)
    except KeyError:
        pass
    except (IndexError, Unsound):
        return SPECIAL + props, None
    if len(props) < 2:
        return SPECIAL + props, None
    if len(_SKIMMERS) >= SKIMMERS_MAX:
        return slow_fate(props)
    skimmer = _SKIMMERS[props[:2]] = _skimmer(int.from_bytes(props[:2], "big") & ~3)
    try:
        return skimmer(props)
    except (IndexError, Unsound):
        return SPECIAL + props, None


def is_zero(expiration: bytes) -> bool:
    """Whether a message with this expiration expires at once, if the expiration is a number at all."""
    return not expiration.strip(b"+-0")


def is_special(key: bytes) -> bool:
    return key.startswith(SPECIAL)


def has_headers(key: bytes) -> bool:
    """Whether messages with this plain key have headers."""
    return key.startswith(b"H")


def slow_fate(props: bytes) -> Fate:
    """The same as `fate`, found by decoding all properties."""
    try:
        found = decode_properties(props)
    except AmqpError:
        return SPECIAL + props, None
    headers = found.headers
    if found.reply_to == DIRECT_REPLY_TO.decode():
        return SPECIAL + props, None
    if headers is not None:
        start = 2
        for text in (found.content_type, found.content_encoding):
            if text is not None:
                start += 1 + len(text.encode("utf-8", "surrogateescape"))
        _, end = decode_table_at(props, start)
        if any(mark in props[start + 4 : end] for mark in _SENDER_SELECTED):
            return SPECIAL + props, None
    parts = [b"H" if headers is not None else b""]
    if found.delivery_mode is not None:
        parts.append(b"m%c" % found.delivery_mode)
    if found.priority is not None:
        parts.append(b"p%c" % found.priority)
    expiration = None
    if found.expiration is not None:
        expiration = found.expiration.encode("utf-8", "surrogateescape")
        if set(expiration) <= set(b"+-0"):
            parts.append(b"z")
    if found.user_id is not None:
        encoded = found.user_id.encode("utf-8", "surrogateescape")
        parts.append(b"u" + bytes((len(encoded),)) + encoded)
    return b"".join(parts), expiration


# --- generated functions ----------------------------------------------------------------------------------------------

_SKIMMERS: dict[bytes, Callable[[bytes], Fate]] = {}


def _skimmer(flags: int) -> Callable[[bytes], Fate]:
    """The function that skims property bytes with these flags. It raises IndexError or Unsound if they are cut off."""
    lines = ["def skim(p):", "    at = 2"]
    key: list[str] = []

    def skip_text(*more: str) -> None:
        lines.extend(["    stop = at + 1 + p[at]", *more, "    at = stop"])

    for flag in (FLAG_CONTENT_TYPE, FLAG_CONTENT_ENCODING):
        if flags & flag:
            skip_text()
    if flags & FLAG_HEADERS:
        lines += [
            "    start = at + 4",
            "    stop = start + int.from_bytes(p[at:start], 'big')",
            "    if p.find(CC, start, stop) >= 0 or p.find(BCC, start, stop) >= 0: raise Unsound",
            "    if start > len(p) or stop > len(p): raise Unsound",
            "    check_entries(p, start, stop)",
            "    at = stop",
        ]
        key.append("b'H'")
    if flags & FLAG_DELIVERY_MODE:
        lines += ["    mode = p[at]", "    at += 1"]
        key.append("b'm%c' % mode")
    if flags & FLAG_PRIORITY:
        lines += ["    priority = p[at]", "    at += 1"]
        key.append("b'p%c' % priority")
    if flags & FLAG_CORRELATION_ID:
        skip_text()
    if flags & FLAG_REPLY_TO:
        skip_text(
            f"    if stop - at == {len(DIRECT_REPLY_TO) + 1} and p.startswith(REPLY_TO, at + 1): raise Unsound",
        )
    if flags & FLAG_EXPIRATION:
        skip_text("    expiration = p[at + 1:stop]")
        key.append("(b'z' if is_zero(expiration) else b'')")
    if flags & FLAG_MESSAGE_ID:
        skip_text()
    if flags & FLAG_TIMESTAMP:
        lines.append("    at += 8")
    if flags & FLAG_TYPE:
        skip_text()
    if flags & FLAG_USER_ID:
        skip_text("    user = p[at:stop]")
        key.append("b'u' + user")
    for flag in (FLAG_APP_ID, FLAG_CLUSTER_ID):
        if flags & flag:
            skip_text()
    expiration = "expiration" if flags & FLAG_EXPIRATION else "None"
    lines += ["    if at != len(p): raise Unsound", f"    return {' + '.join(key) or repr(b'')}, {expiration}"]
    names = {
        "CC": _SENDER_SELECTED[0],
        "BCC": _SENDER_SELECTED[1],
        "REPLY_TO": DIRECT_REPLY_TO,
        "Unsound": Unsound,
        "check_entries": check_entries,
        "is_zero": is_zero,
    }
    exec("\n".join(lines), names)
    found: Callable[[bytes], Fate] = names["skim"]  # type: ignore[assignment]
    return found
