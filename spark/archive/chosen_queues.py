"""Which queues of an archive or of a data directory the options of a job choose.

The broker resolves names and patterns for queues that are read from it: a sharded queue means its shards, because it
has no messages of its own. The functions here do the same for the other places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ..offline.offline_names import metadata_tables
from ..offline.offline_plan import locked
from .notes import ArchivedFile

#: The name of a shard: that of its queue, and its number, which is below 256.
_SHARD = re.compile(r"(.*)_(0|[1-9][0-9]{0,2})", re.DOTALL)


def fits(text: str, glob: str) -> bool:
    """Whether a text fits a pattern, in which only `*` and `?` stand for other characters."""
    return fnmatchcase(text, glob.replace("[", "[[]"))


def queues_in_archive(
    files: Iterable[ArchivedFile], names: Iterable[str] | None, pattern: str | None = None
) -> set[str]:
    """The queues of these files that are chosen; all if there are neither names nor a pattern.

    An archive does not record which queues are shards. So a queue that is called like a shard of a chosen queue is
    chosen too, unless the archive has messages of a queue with that name itself.
    """
    known = {file.queue for file in files}
    found = set()
    for queue in known:
        match = _SHARD.fullmatch(queue)
        whole = match[1] if match is not None and match[1] not in known else None
        if _is_chosen(queue, names, pattern) or whole is not None and _is_chosen(whole, names, pattern):
            found.add(queue)
    return found


def queues_in_directory(path: str, names: Iterable[str] | None, pattern: str | None = None) -> set[str]:
    """The durable queues of a data directory that are chosen. Raises SparkSourceError E11."""
    with locked(path) as place:
        rows = metadata_tables(place).get("queues", ())
    found = set()
    for row in rows:
        queue, whole = str(row.key[1]), row.fields.get("shard_of")
        if _is_chosen(queue, names, pattern) or whole is not None and _is_chosen(str(whole), names, pattern):
            found.add(queue)
    return found


def _is_chosen(queue: str, names: Iterable[str] | None, pattern: str | None) -> bool:
    return (names is None or queue in names) and (pattern is None or fits(queue, pattern))
