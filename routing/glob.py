"""Globs: patterns of names in which `*` stands for any text and `?` for one character.

A glob is matched without regular expressions. So a name of 255 characters costs a client's pattern of as many at most
the product of their lengths, and no pattern makes the broker try out combinations.
"""

from __future__ import annotations


def matches_glob(pattern: str, name: str) -> bool:
    """Whether the whole name fits the pattern.

    Each `*` takes as little as it can, and more only when what follows it does not fit. A later `*` never gives back
    anything to an earlier one, because whatever the earlier one could take the later one can take as well.
    """
    at = position = 0
    star, resumed = -1, 0
    while position < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resumed = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[position]):
            at += 1
            position += 1
        elif star >= 0:
            resumed += 1
            at, position = star + 1, resumed
        else:
            return False
    return not pattern[at:].strip("*")
