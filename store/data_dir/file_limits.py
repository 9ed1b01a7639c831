"""When the files of a virtual host are full."""

from __future__ import annotations

from dataclasses import dataclass

from ..bodies.store_engine import FILE_LIMIT as STORE_LIMIT
from ..index.queue_index import SEGMENT_ENTRIES
from ..journal.journal_engine import FILE_LIMIT as JOURNAL_LIMIT
from ..queue.placement import EMBED_BELOW


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A new file is begun after these; the defaults are for real disks. With small ones rotation, folding and garbage collection come soon: for tests and the simulation.

    journal, store     octets
    embed_below        octets; bodies of that many and more are the message store's
    segment_entries    messages; a virtual host that is on the disk keeps the number it was made with (D-2)
    """

    journal: int = JOURNAL_LIMIT
    store: int = STORE_LIMIT
    segment_entries: int = SEGMENT_ENTRIES
    embed_below: int = EMBED_BELOW


REAL_FILES = FileLimits()
