"""JSON values as operators give them, and as RabbitMQ prints them in refusals."""

from __future__ import annotations

import json
from typing import Any

from .errors import DefinitionError

#: Bytes of a JSON text that an operator may set; all of it goes to every node and into listings.
JSON_MAX = 1 << 20


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises DefinitionError, also for numbers that JSON does not have."""
    if len(text) > JSON_MAX:
        raise DefinitionError("unavailable", f"JSON decoding error. Reason: the text is longer than {JSON_MAX}")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "the values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DefinitionError("unavailable", f"JSON decoding error. Reason: {reason}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def json_text(value: Any) -> str:
    """The text that is kept of a JSON value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def erlang_term(value: Any) -> str:
    """A JSON value as RabbitMQ prints it: `<<"text">>`, `true`, `[1,2]`, `#{<<"a">> => 1}`."""
    if isinstance(value, str):
        return f'<<"{value}">>'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(erlang_term, value))}]"
    if isinstance(value, dict):
        return f"#{{{','.join(f'{erlang_term(key)} => {erlang_term(item)}' for key, item in value.items())}}}"
    return str(value)
