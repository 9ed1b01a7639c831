"""The routing keys that a publisher adds in the headers CC and BCC (sender-selected distribution, AB-75)."""

from __future__ import annotations

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..amqp.fields import TYPE_NAMES, Table

#: The names of these headers.
SENDER_SELECTED = frozenset((b"CC", b"BCC"))


def sender_selected_keys(headers: Table | None) -> tuple[str, ...]:
    """The routing keys in the headers CC and BCC, in this order. Raises AmqpError 406 if one is not an array."""
    if not headers:
        return ()
    keys: list[str] = []
    for name in ("CC", "BCC"):
        found = headers.get(name)
        if found is not None:
            letter, value = found
            if letter != "A":
                raise AmqpError(
                    PRECONDITION_FAILED,
                    f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[letter]}}}',
                )
            keys += [key.decode("utf-8", "surrogateescape") for key_letter, key in value if key_letter == "S"]
    return tuple(keys)
