"""`properties_key`: names a binding among those between one source and one destination, for the HTTP API."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import quote_plus

from ..amqp.fields import Table, encode_table


def properties_key(routing_key: str, arguments: Table) -> str:
    """The URL-encoded routing key, followed by `~` and a hash of the arguments if there are any (CM-294).

    `~` alone if there are neither.
    """
    key = quote_plus(routing_key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if not arguments:
        return key or "~"
    # Encoded, because `repr` walks over nested tables by recursion, and Python's stack has an end.
    digest = hashlib.sha256(encode_table(tuple(sorted(arguments, key=_name)))).digest()[:16]
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _name(entry: tuple[str, str, object]) -> str:
    return entry[0]
