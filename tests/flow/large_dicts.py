"""Finds those tables of a broker that are one large dict, because a turn copies such a dict when it grows."""

from __future__ import annotations

import gc

from warren.parted_table import SPLIT_AT


def large_dicts(*roots):
    """All dicts, at any depth below the roots, with as many entries as a client has made."""
    seen, waiting = {}, list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen[id(each)] = each
        if isinstance(each, (dict, list, tuple)) or type(each).__module__.startswith(("warren.", "collections")):
            waiting += gc.get_referents(each)
    return [each for each in seen.values() if isinstance(each, dict) and len(each) >= SPLIT_AT]
