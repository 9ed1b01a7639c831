"""A run of the job `archive`: it plans micro-batches as Spark does for a stream, and has tasks write their files.

A streaming query of Spark would do the same. But it starts a Python process of its own and has Java write the notes
about the files, which together takes longer than to archive a million small messages. The steps of a micro-batch, and
what the next run does if the program dies behind one of them:

1. Its end is written to the checkpoint. The next run begins with the same micro-batch.
2. Tasks write its files. The next run replaces them by equal ones.
3. The files are noted, and the micro-batch is complete. The next run acknowledges its messages.
4. Its messages are acknowledged.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions

from ..errors import is_full, lost_checkpoint, no_space_for_notes, wrong_notes
from .archive_reader import ArchiveOptions, ArchivePartition, ArchiveReader
from .checkpoint import ArchiveCheckpoint
from .notes import ArchivedFile, alone, commit_files, file_from_json, file_to_json, last_committed, place_of


class ArchiveRun:
    """Archives queues in a thread of its own, until all is archived that was there at the beginning.

    every   instead go on with what comes, with a micro-batch each so many seconds, until `end`

    `files`, `messages`, `bytes` and `gone` are what the run has added, as in `ArchiveResult`.
    """

    def __init__(self, spark: Any, options: ArchiveOptions, every: float | None) -> None:
        self.files = self.messages = self.bytes = self.gone = 0
        self._spark = spark
        self._target = options.target
        self._every = every
        self._checkpoint = ArchiveCheckpoint(options.target)
        self._reader = ArchiveReader(options)
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self._is_writing = False
        self._numbers_in_hand = 0
        #: Where the micro-batches that are complete end.
        self._place: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._tag = f"warren-archive-{uuid.uuid4().hex}"
        self._thread = threading.Thread(target=self._run, name="warren archive", daemon=True)
        self._thread.start()

    # -- for another thread ---

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the run; returns whether it has come. Raises what has ended the run."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def end(self) -> bool:
        """Have the run end after the micro-batch that is being written. Returns True if none is being written."""
        with self._lock:
            self._is_ending.set()
            return not self._is_writing

    def abort(self) -> None:
        """End the run at once, with its tasks."""
        if not self.end() and self._thread.is_alive():
            self._spark.interruptTag(self._tag)

    def places(self) -> dict[str, tuple[int, int]]:
        """For each queue the number to which it is archived, and its next number."""
        place, latest = self._place, self._reader.reportLatestOffset()
        if place is None or latest is None:
            return {}
        goals = latest["queues"]
        return {name: (each["next"], goals.get(name, each)["next"]) for name, each in place["queues"].items()}

    def in_hand(self) -> int:
        """How many numbers the micro-batch has that is being written."""
        return self._numbers_in_hand

    # -- micro-batches ---

    def _run(self) -> None:
        try:
            with alone(self._target, "archive"):
                self._archive()
        except OSError as error:
            self._error = no_space_for_notes(self._target) if is_full(error) else error
        except BaseException as error:
            self._error = error
        finally:
            self._reader.stop()

    def _archive(self) -> None:
        reader = self._reader
        if self._every is None:
            reader.prepareForTriggerAvailableNow()
        batch, place = self._resume()
        limit = reader.getDefaultReadLimit()
        while not self._is_ending.is_set():
            began = time.monotonic()
            self._place = place
            end = reader.latestOffset(place, limit)
            if end != place:
                if not self._begin():
                    return
                self._checkpoint.plan(batch, end)
                self._write(batch, place, end)
                batch, place = batch + 1, end
            elif self._every is None:
                return
            if self._every is not None:
                self._is_ending.wait(max(0.0, began + self._every - time.monotonic()))

    def _resume(self) -> tuple[int, dict[str, Any]]:
        """The number of the next micro-batch, and where it begins. Writes the last one if that was interrupted."""
        planned, committed = self._checkpoint.last_planned(), last_committed(self._target)
        if committed > planned:
            raise lost_checkpoint(self._target)
        if planned < 0:
            return 0, self._reader.initialOffset()
        end = self._checkpoint.offset(planned)
        if planned > committed and self._begin():
            # No earlier micro-batch tells where the first one began, so its own end says that, too.
            start = self._checkpoint.offset(planned - 1) if planned else {**end, "queues": end["from"]}
            self._write(planned, start, end)
        return planned + 1, end

    def _begin(self) -> bool:
        """Note that a micro-batch is being written; False if the run must end."""
        with self._lock:
            self._is_writing = not self._is_ending.is_set()
            return self._is_writing

    def _write(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        partitions = self._reader.partitions(start, end)
        count = self._numbers_in_hand = sum(len(partition.covers) for partition in partitions)
        files = self._written(batch, partitions)
        noted = sum(file.next - file.first for file in files)
        if noted != count:
            raise wrong_notes(self._target, batch, noted, count)
        commit_files(self._target, batch, files)
        self.files += sum(file.path is not None for file in files)
        self.messages += sum(file.rows for file in files)
        self.bytes += sum(file.bytes for file in files)
        self.gone += sum(file.gone for file in files)
        self._reader.commit(end)
        self._numbers_in_hand, self._is_writing = 0, False

    def _written(self, batch: int, partitions: Sequence[ArchivePartition]) -> list[ArchivedFile]:
        """Have a task write the files of each partition."""
        if not partitions:
            return []
        reader, name = self._reader, f"spark/archive/{batch}"

        def write(place: int) -> list[str]:
            return [file_to_json(file) for file in reader.write(partitions[place], f"{name}/{place}")]

        # Spark may call a function that it takes for deterministic more than once.
        written = functions.udf(write, "array<string>", useArrow=False).asNondeterministic()
        self._spark.addTag(self._tag)
        tasks = self._spark.range(0, len(partitions), 1, len(partitions)).select(written("id"))
        return sorted((file_from_json(file) for (files,) in tasks.collect() for file in files), key=place_of)
