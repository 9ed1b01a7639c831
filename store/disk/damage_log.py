"""Log lines of recovery about damaged and foreign files: one line a file, with what it means for messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from .disk import Disk

log = logging.getLogger("warren.store")

VERIFY = "`warren store verify DATA_DIR` shows details while the broker is stopped"
_MAX_SHOWN = 3


class DamagedRange(Protocol):
    """Damaged bytes of a file, from `offset` to before `end`."""

    @property
    def offset(self) -> int: ...

    @property
    def end(self) -> int: ...


def log_damaged(
    disk: Disk, path: str, parts: Sequence[DamagedRange], behind: str, meaning: str, level: int = logging.ERROR
) -> None:
    """Log that `parts` of a file are damaged.

    behind     what follows the first damaged part, e.g. "3 whole frames, which are replayed"
    meaning    what recovery did about the damage and what that means for messages: a sentence
    """
    shown = ", ".join(f"{part.offset:,} to {part.end - 1:,}" for part in parts[:_MAX_SHOWN])
    more = f" and {len(parts) - _MAX_SHOWN:,} further places" if len(parts) > _MAX_SHOWN else ""
    log.log(
        level,
        "%s is damaged: bytes %s%s; behind that %s. %s. %s",
        disk.full_path(path),
        shown,
        more,
        behind,
        meaning,
        VERIFY,
    )


def log_foreign(disk: Disk, directory: str, names: Iterable[str], what: str) -> None:
    """Log that recovery left `names` alone because they are not names of `what` (e.g. "a segment")."""
    foreign = sorted(names)
    if foreign:
        more = f" and {len(foreign) - _MAX_SHOWN:,} more" if len(foreign) > _MAX_SHOWN else ""
        log.warning(
            "%s: %s%s left alone: not the name of %s",
            disk.full_path(directory),
            ", ".join(map(repr, foreign[:_MAX_SHOWN])),
            more,
            what,
        )
