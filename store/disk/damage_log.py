"""What recovery says of damage and of foreign files: a line of log for each file, which tells an operator what it means for messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from .disk import Disk

log = logging.getLogger("warren.store")

VERIFY = "`warren store verify DATA_DIR` says more while the broker is stopped"
_SHOWN_MOST = 3


class DamagedRange(Protocol):
    """Damaged bytes of a file."""

    @property
    def offset(self) -> int: ...

    @property
    def end(self) -> int: ...


def say_damaged(
    disk: Disk, path: str, parts: Sequence[DamagedRange], behind: str, meaning: str, level: int = logging.ERROR
) -> None:
    """`behind`: what lies behind the first of the parts; `meaning`: what became of it, and what that means for messages."""
    shown = ", ".join(f"{part.offset:,} to {part.end - 1:,}" for part in parts[:_SHOWN_MOST])
    more = f" and {len(parts) - _SHOWN_MOST:,} further places" if len(parts) > _SHOWN_MOST else ""
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


def say_foreign(disk: Disk, directory: str, names: Iterable[str], what: str) -> None:
    """Names that `what` (of which kind the others are) does not have are left alone."""
    foreign = sorted(names)
    if foreign:
        more = f" and {len(foreign) - _SHOWN_MOST:,} more" if len(foreign) > _SHOWN_MOST else ""
        log.warning(
            "%s: %s%s left alone: not the name of %s",
            disk.full_path(directory),
            ", ".join(map(repr, foreign[:_SHOWN_MOST])),
            more,
            what,
        )
