"""Bugs of runs whose messages differ in properties, routing keys or destinations, which the simulation must find. Each
docstring says what the bug does.
"""

from __future__ import annotations

import re
from typing import Any

from .one_node import bug


@bug("the origins of a part of a run")
def origins_of_another_piece(slice_of: Any, origins: Any, piece: slice) -> Any:
    """A part of a run gets the origins of the run's first messages."""
    found = slice_of(origins, piece)
    return origins[: len(found)] if isinstance(found, list) else found


@bug("the origins of a run that grows")
def origin_of_the_first(extend: Any, self: Any, contents: Any, origins: Any, *rest: Any) -> None:
    """A run that grows keeps one origin, that of its first message."""
    extend(self, contents, self.origins if not isinstance(self.origins, list) else origins, *rest)


@bug("the fate of a message")
def priority_overlooked(fate: Any, props: bytes) -> Any:
    """Messages with different priorities have the same fate."""
    key, expiration = fate(props)
    return re.sub(rb"^(H?(?:m.)?)p.", rb"\1", key, flags=re.DOTALL), expiration


@bug("which values of deciding properties match a header pattern", "after how many headers a pattern is made")
def pattern_of_any_priority(original: Any, *value: bytes) -> bytes | int:
    """A header pattern allows any priority.

    Patterns are compiled from the first message on here, since schedules have few messages.
    """
    if not value:
        return 1
    return b"[\0-\5]" if len(value[0]) == 1 and value[0] <= b"\5" else bytes(original(*value))


@bug("which publications go to the same queues")
def destinations_of_the_first(group_of: Any, *arguments: Any) -> int:
    """Messages with different routing keys go to the queues of the first one."""
    return min(int(group_of(*arguments)), 1)
