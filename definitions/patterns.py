"""Regular expressions of operators, which permissions and policies search in names of queues, exchanges and topics.

RabbitMQ uses PCRE, which backtracks: matching `^(a+)+$` with a name of forty letters would take longer than the
universe has existed, and meanwhile no process of the node would run. PCRE gives up after a number of steps, and
RabbitMQ treats that as no match. Here the package `regex` searches first. If it takes longer than `SEARCH_SECONDS`, a
search without backtracking (`position_sets`) decides, which is slower for simple patterns and finds the same. So the
answer does not depend on how busy a node is: all nodes of a cluster must agree on which queues a policy mirrors
(CL-27). A search by Python's own `re` cannot be ended, and other engines without backtracking lack the lookahead that
RabbitMQ's documentation uses in its first example of a policy, `^(?!amq\\.)`.

The search without backtracking cannot be used for a pattern with a reference to a group, an atomic group, a possessive
repetition or a class such as `[:alpha:]`. `regex` searches for such a pattern up to `SEARCHES` times, because it counts
the processor time of all threads of the process: beside two busy threads one in 600 searches of a few microseconds
seemed to take too long. If all of them take too long, the pattern counts as one that does not match.

As in RabbitMQ, names and patterns are compared as bytes of UTF-8, so `.` is one byte.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]

from .errors import DefinitionError
from .position_sets import PositionSets, TooManySteps, Unsupported

log = logging.getLogger("warren.definitions")

#: The longest search by `regex`; most take microseconds. The engine checks the clock at intervals, so a search may take
#: some ms longer.
SEARCH_SECONDS = 0.002

#: How often `regex` searches at most if there is no other search for the pattern.
SEARCHES = 3

#: The most bytes of a pattern. A name has at most 255 bytes, so a longer pattern is of no use, and the time to compile
#: a pattern grows with its length.
PATTERN_MAX = 4096

#: Compiled patterns that are kept, of 3 KB each. To compile one takes 200 µs, and if a virtual host had more policies
#: than this, each of them would be compiled anew for each queue.
COMPILED_KEPT = 4096


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
    """Whether the pattern is found anywhere in the text. Raises TimeoutError if every search takes too long.

    The pattern must be one without a `fault`, or regex.error is raised.
    """
    encoded = text.encode("utf-8", "surrogateescape")
    try:
        return _found_by_regex(pattern, encoded)
    except TimeoutError:
        pass
    try:
        return _found_without_backtracking(pattern, encoded)
    except TimeoutError as error:
        for _ in range(SEARCHES - 1):
            with suppress(TimeoutError):
                return _found_by_regex(pattern, encoded)
        raise error from None


def _found_by_regex(pattern: str, text: bytes) -> bool:
    """`found` by the package `regex`. Raises TimeoutError after `SEARCH_SECONDS`."""
    return bool(_compiled(pattern).search(text, timeout=SEARCH_SECONDS))


@lru_cache(COMPILED_KEPT)
def _without_backtracking(pattern: str) -> PositionSets:
    return PositionSets(pattern.encode("utf-8", "surrogateescape"))


def _found_without_backtracking(pattern: str, text: bytes) -> bool:
    """`found` by `position_sets`. Raises TimeoutError if it does not support the pattern or takes too many steps."""
    try:
        return _without_backtracking(pattern).is_found(text)
    except (Unsupported, TooManySteps) as error:
        raise TimeoutError(str(error)) from None


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern is found anywhere in the name; False if every search takes too long.

    False as well if the pattern cannot be compiled: a valid pattern may become invalid when its variables are replaced.
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
