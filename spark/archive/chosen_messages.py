"""Which messages of an archive the job `replay` publishes, as record batches in the order of each queue."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from ..errors import wrong_options
from .chosen_queues import fits, queues_in_archive
from .notes import ArchivedFile, noted_files

#: The columns of a message that it is published with.
COLUMNS = ["seq", "exchange", "routing_key", "body", "properties", "arrived"]
#: Rows of a record batch at most.
BATCH_ROWS = 10_000


def queues_to_replay(target: str, names: Sequence[str] | None) -> dict[tuple[str, str], list[ArchivedFile]]:
    """The files of these queues, or of their shards, by name and id of each queue; of all queues for None. Raises
    SparkSourceError E4 if there are none, also if there are none of one name.
    """
    noted = noted_files(target)
    chosen = queues_in_archive(noted, names)
    found: dict[tuple[str, str], list[ArchivedFile]] = {}
    for file in noted:
        if file.path is not None and file.queue in chosen:
            found.setdefault((file.queue, file.queue_id), []).append(file)
    having = {queue for queue, _ in found}
    for name in names or ():
        if having.isdisjoint(queues_in_archive(noted, [name])):
            raise wrong_options(f"the archive '{target}' has no message of queue '{name}'")
    if not found:
        raise wrong_options(f"the archive '{target}' has no message")
    return found


@dataclass(frozen=True)
class Choice:
    """Which messages are published."""

    routing_keys: str | None
    since: datetime | None
    until: datetime | None
    message_id: str | None
    correlation_id: str | None

    @property
    def wanted(self) -> dict[str, str]:
        """The values that columns of a chosen message have."""
        given = {"message_id": self.message_id, "correlation_id": self.correlation_id}
        return {name: value for name, value in given.items() if value is not None}

    def may_have(self, file: ArchivedFile) -> bool:
        """Whether a file may have a message that is chosen. The times of a file are not known if one message lacks its
        own.
        """
        least, most = file.arrived_least, file.arrived_most
        if self.since is not None and most is not None and most < self.since:
            return False
        return not (self.until is not None and least is not None and least > self.until)

    def of(self, batch: Any) -> Any:
        """The chosen rows."""
        masks = [pa.compute.equal(batch.column(name), value) for name, value in self.wanted.items()]
        for moment, compare in ((self.since, pa.compute.greater_equal), (self.until, pa.compute.less_equal)):
            if moment is not None:
                masks.append(compare(batch.column("arrived"), pa.scalar(moment)))
        if self.routing_keys is not None:
            pattern = self.routing_keys
            keys = batch.column("routing_key").to_pylist()
            masks.append(pa.array([fits(key or "", pattern) for key in keys], pa.bool_()))
        # A row without a value that is asked for is left out.
        return batch.filter(functools.reduce(pa.compute.and_, masks)) if masks else batch


def chosen_rows(target: str, files: Sequence[ArchivedFile], chosen: Choice, after: int) -> Iterator[Any]:
    """Record batches of the chosen messages from the number `after` on, in their order."""
    waiting = deque(files)
    while waiting:
        file = waiting.popleft()
        if file.next <= after or not chosen.may_have(file):
            continue
        try:
            opened = pa.parquet.ParquetFile(f"{target}/{file.path}")
        except FileNotFoundError:
            # The job `compact` has merged the file into another one since the notes were read.
            now = queues_to_replay(target, [file.queue]).get((file.queue, file.queue_id), [])
            if file in now:
                raise
            waiting = deque(now)
            continue
        with opened:
            for batch in opened.iter_batches(BATCH_ROWS, columns=[*COLUMNS, *chosen.wanted]):
                if after > file.first:
                    batch = batch.filter(pa.compute.greater_equal(batch.column("seq"), after))
                batch = chosen.of(batch)
                if batch.num_rows:
                    yield batch
        after = max(after, file.next)
