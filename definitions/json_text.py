"""JSON values as operators give them, and as RabbitMQ prints them in refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from .errors import DefinitionError

#: Bytes of a JSON text that an operator may set; all of it goes to every node and into listings.
JSON_MAX = 1 << 20

#: Whole numbers from -2**63 to 2**63 - 1 are kept, as in AMQP. The store and the commands could not carry larger ones.
NUMBER_BITS = 63


#: Lists and objects inside each other.
DEPTH_MAX = 64


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises DefinitionError, also for NaN and for numbers and nesting beyond the bounds."""
    if len(text) > JSON_MAX:
        raise DefinitionError("unavailable", f"JSON decoding error. Reason: the text is longer than {JSON_MAX}")
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer, parse_float=_float)
        _check_depth(value)
        return value
    except (ValueError, RecursionError) as error:
        reason = "the values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        if "{" in text and '"' not in text:
            reason += ". A shell removes double quotes unless the JSON stands between single quotes: '{\"key\":1}'"
        raise DefinitionError("unavailable", f"JSON decoding error. Reason: {reason}") from None


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [inner for each in level if isinstance(each, (dict, list)) for inner in _values(each)]:
        depth += 1
        if depth > DEPTH_MAX:
            raise RecursionError


def _values(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -1 << NUMBER_BITS <= int(digits) < 1 << NUMBER_BITS:
        raise ValueError(f"the number {digits[:30]} has more than 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {digits[:30]} is too large")
    return number


def json_text(value: Any) -> str:
    """The text that is kept of a JSON value. Raises DefinitionError for what is none, or could not be stored."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        reason = "a text has half of a surrogate pair, which is no character"
    except RecursionError:
        reason = "the values are nested too deeply"
    except (TypeError, ValueError) as error:
        reason = str(error)
    else:
        return text
    raise DefinitionError("unavailable", f"this is no JSON value: {reason}")


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
