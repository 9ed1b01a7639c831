"""`PositionSets`: whether a regular expression is found in a text, without backtracking.

A search that backtracks may try exponentially many ways to match the same characters. This one maps, for each part of
the pattern, all positions at which the part may begin to all positions at which it may end, as bits of an integer:

    literal         the positions that have the character, one further
    a|b             what each alternative reaches
    a*              what a reaches, then what it reaches from there, until nothing is new
    (?=a) (?!a)     the positions from which a reaches something, or nothing: the same search from the end to the begin
    (?<=a) (?<!a)   the positions that a reaches from anywhere, or the others

Whether there is a match does not depend on the order in which alternatives are tried, so greedy and lazy repetitions
are the same. The number of steps depends on the pattern and the text alone, so every node gets the same result.

With references to groups, atomic groups and possessive repetitions a match does depend on that order. Such patterns,
and those that only the package `regex` understands, raise `Unsupported`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Python's own parser of patterns has no public name.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

#: The largest number of steps of a search, the same on every node. Patterns that operators write take hundreds.
STEPS_MOST = 50_000

_CATEGORIES: dict[Any, bytes] = {
    _constants.CATEGORY_DIGIT: rb"\d",
    _constants.CATEGORY_NOT_DIGIT: rb"\D",
    _constants.CATEGORY_SPACE: rb"\s",
    _constants.CATEGORY_NOT_SPACE: rb"\S",
    _constants.CATEGORY_WORD: rb"\w",
    _constants.CATEGORY_NOT_WORD: rb"\W",
}
_ALL = frozenset(range(256))
_WORD = frozenset(byte for byte in _ALL if re.match(rb"\w", bytes([byte])))


class Unsupported(Exception):
    """The pattern depends on the order in which ways to match are tried, or cannot be read."""


class TooManySteps(Exception):
    """The search takes more than `STEPS_MOST` steps."""


class PositionSets:
    """A compiled pattern. The constructor raises Unsupported."""

    def __init__(self, pattern: bytes) -> None:
        if b"[:" in pattern:
            raise Unsupported("only the package regex knows classes such as [:alpha:]")
        try:
            parsed = _parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise Unsupported(str(error)) from None
        self._parts = _compiled(parsed, parsed.state.flags)

    def is_found(self, text: bytes) -> bool:
        """Whether the pattern is found anywhere in the text. Raises TooManySteps, on every node or on none."""
        return bool(_Search(text).reached(self._parts, (1 << len(text) + 1) - 1))


#: A part of a pattern: its kind ("bytes", "branch", "repeat", "look" or "at"), and its operands.
CompiledPart = tuple[Any, ...]


def _compiled(items: Any, flags: int) -> list[CompiledPart]:
    return [_part(operator, argument, flags) for operator, argument in items]


def _part(operator: Any, argument: Any, flags: int) -> CompiledPart:
    match operator:
        case _constants.LITERAL:
            return "bytes", _cased(frozenset([argument]), flags)
        case _constants.NOT_LITERAL:
            return "bytes", _ALL - _cased(frozenset([argument]), flags)
        case _constants.ANY:
            return "bytes", _ALL if flags & re.DOTALL else _ALL - {ord("\n")}
        case _constants.IN:
            return "bytes", _set(argument, flags)
        case _constants.BRANCH:
            return "branch", [_compiled(each, flags) for each in argument[1]]
        case _constants.SUBPATTERN:
            _, added, removed, inner = argument
            return "branch", [_compiled(inner, flags & ~removed | added)]
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
            least, most, inner = argument
            return "repeat", least, None if most is _constants.MAXREPEAT else most, _compiled(inner, flags)
        case _constants.ASSERT | _constants.ASSERT_NOT:
            direction, inner = argument
            return "look", direction > 0, operator is _constants.ASSERT_NOT, _compiled(inner, flags)
        case _constants.AT:
            return "at", argument, bool(flags & re.MULTILINE)
        case _constants.FAILURE:
            return "branch", []
    raise Unsupported(f"{operator} depends on the order of a search")


def _set(items: Any, flags: int) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    is_negated = False
    for operator, argument in items:
        if operator is _constants.NEGATE:
            is_negated = True
        elif operator is _constants.LITERAL:
            found |= {argument}
        elif operator is _constants.RANGE:
            found |= {*range(argument[0], argument[1] + 1)}
        else:
            known = re.compile(_CATEGORIES[argument])
            found |= {byte for byte in _ALL if known.match(bytes([byte]))}
    found = _cased(found, flags)
    return _ALL - found if is_negated else found


def _cased(found: frozenset[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return found
    return found | {ord(each) for byte in found for text in [bytes([byte])] for each in (text.lower(), text.upper())}


class _Search:
    """A search in one text. Sets of positions are integers: bit n is the place before byte n."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._everywhere = (1 << len(text) + 1) - 1
        #: By byte, the positions that have it.
        self._places: dict[int, int] = {}
        for at, byte in enumerate(text):
            self._places[byte] = self._places.get(byte, 0) | 1 << at
        self._of_set: dict[frozenset[int], int] = {}
        self._left = STEPS_MOST

    def reached(self, parts: Sequence[CompiledPart], places: int, is_forward: bool = True) -> int:
        """The positions at which these parts, one behind the other, may end if they begin at one of `places`.

        If not `is_forward`: the positions at which they may begin if they end at one of `places`.
        """
        for part in parts if is_forward else reversed(parts):
            if not places:
                break
            self._left -= 1
            if self._left < 0:
                raise TooManySteps
            match part[0]:
                case "bytes":
                    having = self._positions(part[1])
                    places = (places & having) << 1 if is_forward else places >> 1 & having
                case "branch":
                    reached = 0
                    for alternative in part[1]:
                        reached |= self.reached(alternative, places, is_forward)
                    places = reached
                case "repeat":
                    least, most, inner = part[1:]
                    places = self._repeated(least, most, inner, places, is_forward)
                case "look":
                    is_ahead, is_negated, inner = part[1:]
                    found = self.reached(inner, self._everywhere, not is_ahead)
                    places &= ~found if is_negated else found
                case "at":
                    places &= self._at(*part[1:])
        return places

    def _positions(self, wanted: frozenset[int]) -> int:
        found = self._of_set.get(wanted)
        if found is None:
            found = 0
            for byte, places in self._places.items():
                if byte in wanted:
                    found |= places
            self._of_set[wanted] = found
        return found

    def _repeated(
        self, least: int, most: int | None, parts: Sequence[CompiledPart], places: int, is_forward: bool
    ) -> int:
        for _ in range(least):
            before, places = places, self.reached(parts, places, is_forward)
            if places in (0, before):
                break  # another repetition would change nothing
        reached = fresh = places
        count = least
        while fresh and (most is None or count < most):
            fresh = self.reached(parts, fresh, is_forward) & ~reached
            reached |= fresh
            count += 1
        return reached

    def _at(self, place: Any, is_multiline: bool) -> int:
        """The positions at which an anchor such as `^`, `$` or `\\b` matches."""
        size = len(self._text)
        newlines = self._places.get(ord("\n"), 0)
        if place is _constants.AT_BEGINNING and is_multiline:
            return 1 | newlines << 1
        if place in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
            return 1
        if place is _constants.AT_END_STRING:
            return 1 << size
        if place is _constants.AT_END:
            return 1 << size | (newlines if is_multiline else newlines & (1 << size >> 1))
        words = self._positions(_WORD)
        boundaries = (words ^ words << 1) & self._everywhere
        return boundaries if place is _constants.AT_BOUNDARY else self._everywhere & ~boundaries
