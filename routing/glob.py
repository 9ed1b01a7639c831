"""Globs: patterns of names in which `*` stands for any text and `?` for one character.

A glob is matched without regular expressions, because its pattern comes from a client. A match takes at most as many
steps as the product of the lengths of pattern and name, so no pattern can occupy the broker for long.
"""

from __future__ import annotations


def matches_glob(pattern: str, name: str) -> bool:
    """Whether the whole name fits the pattern.

    Each `*` takes as few characters as possible, and more only when the rest of the pattern does not fit. When a later
    `*` is reached, an earlier one never needs to take more, because the later one can take the same characters.
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
