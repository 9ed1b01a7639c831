"""The sizes at which the files of a virtual host are full."""

from __future__ import annotations

from dataclasses import dataclass

from ..bodies.store_engine import FILE_LIMIT as STORE_LIMIT
from ..index.queue_index import SEGMENT_ENTRIES
from ..journal.journal_engine import FILE_LIMIT as JOURNAL_LIMIT
from ..queue.variable.placement import EMBED_BELOW
from .reserve import SIZE as RESERVE


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The size after which a new file is begun.

    The defaults are for real disks. Tests and the simulation use small limits, so that rotation, flushes and garbage
    collection happen soon.

    journal            bytes of a journal file
    store              bytes of a message store's file
    segment_entries    messages of an index segment; an existing virtual host keeps the number it was made with (D-2)
    embed_below        bytes; larger or equal messages go to a message store
    reserve            bytes kept for a start on a full disk (see `reserve`); 0: none
    """

    journal: int = JOURNAL_LIMIT
    store: int = STORE_LIMIT
    segment_entries: int = SEGMENT_ENTRIES
    embed_below: int = EMBED_BELOW
    reserve: int = RESERVE


REAL_FILES = FileLimits()
