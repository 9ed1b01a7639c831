"""Regular expressions of operators: permissions and policies search them in names of queues, exchanges and topics.

RabbitMQ's are PCRE's, which backtrack: matching `^(a+)+$` with a name of forty letters takes longer than the universe
has existed, and would stop every process of the node. PCRE gives up after a number of steps, and RabbitMQ takes that
for no match. So does this module: a search ends after `SEARCH_SECONDS` without a match. Python's own `re` cannot be
ended, and engines without backtracking lack the lookahead that RabbitMQ's documentation uses in its first example of a
policy, `^(?!amq\\.)`; the package `regex` has both.

As in RabbitMQ, names and patterns are compared as bytes of UTF-8, so `.` is one byte.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]

from .errors import DefinitionError

log = logging.getLogger("warren.definitions")

#: The longest search. One that matches takes microseconds. The engine looks at the clock now and then only, so a search
#: may take some ms longer.
SEARCH_SECONDS = 0.002

#: Bytes of a pattern. A name has at most 255 bytes, so a longer pattern than this hardly means anything, and what it
#: costs to compile one grows with its length.
PATTERN_MAX = 4096

#: Compiled patterns that are kept.
COMPILED_KEPT = 1024


@lru_cache(COMPILED_KEPT)
def _compiled(pattern: str) -> Any:
    return regex.compile(pattern.encode("utf-8", "surrogateescape"))


def fault(pattern: str) -> str:
    """Why the pattern cannot be used, with the place as `(reason at position 3)`; empty for a good one."""
    if len(pattern.encode("utf-8", "surrogateescape")) > PATTERN_MAX:
        return f"regular expression is too large: it has more than {PATTERN_MAX} bytes"
    try:
        _compiled(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def check(pattern: str) -> None:
    """Raise DefinitionError for a pattern of a permission that cannot be used."""
    reason = fault(pattern)
    if reason:
        raise DefinitionError("unavailable", f"{{:invalid_regexp, '{pattern}', '{reason}'}}")


def found(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text. Raises TimeoutError if the search takes too long.

    The pattern must be one without a `fault`, or regex.error is raised.
    """
    return bool(_compiled(pattern).search(text.encode("utf-8", "surrogateescape"), timeout=SEARCH_SECONDS))


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern is found anywhere in the name. A search that takes too long finds nothing.

    Nor does a pattern that cannot be compiled: a good one may become bad when its variables are replaced by a name.
    """
    if pattern == ".*":
        return True
    try:
        return found(pattern, name)
    except TimeoutError:
        log.warning(
            "the regular expression %r takes too long on %r, so it counts as one that does not match; it has nested "
            "or adjacent repetitions that match the same text in many ways",
            pattern[:200],
            name[:200],
        )
        return False
    except regex.error:
        return False
