"""`spark.readStream`: the planner's side of a streaming query. Every message becomes part of the query exactly once.

Spark writes the range of a micro-batch to the checkpoint before the micro-batch runs, and runs the same range again
after a failure. The range then has the same messages, because numbers are never given twice, and because a message
leaves the queue only by this query's acknowledgements, which are sent when the micro-batch is in the commit log. If a
message leaves the queue in another way, the query finds its number missing and reports a loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ...version import __version__
from ..errors import data_loss, no_such_queue, other_offset_version, queue_gone
from ..options import StreamOptions
from ..rows.columns import RowPlan
from .batch_reader import RangePartition, check_offsets
from .catalogue import covers
from .offsets import (
    OF_MICRO_BATCH,
    VERSION,
    Loss,
    QueueState,
    cause_of,
    first_number,
    loss,
    make_offset,
    place_of,
    plan,
    share,
    unknown_keys,
)
from .planner import Planner

log = logging.getLogger("warren.spark")

#: Seconds that an idle query waits before it answers that nothing is new, because Spark then asks again at once.
IDLE_PAUSE = 0.1
#: A limit that no micro-batch reaches, for queries that have none.
UNLIMITED = 1 << 62


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their partitions."""

    def __init__(self, options: StreamOptions, rows: RowPlan) -> None:
        self._options = options
        self._rows = rows
        self._planner: Planner | None = None
        self._initial: dict[str, Any] | None = None
        #: With the trigger AvailableNow: where each queue ended when the query began.
        self._frozen: dict[str, QueueState] | None = None
        self._states: dict[str, QueueState] = {}
        #: Since when fewer than `minMessagesPerTrigger` wait.
        self._waiting_since: float | None = None
        self._acknowledged: dict[str, tuple[str, int]] = {}
        #: Losses that are in the log already.
        self._reported: set[Loss] = set()

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, which needs no connection of a planner.
        return {**self.__dict__, "_planner": None, "_states": {}, "_frozen": None}

    # -- offsets ---

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            states = self._ask()
            missing = [name for name in self._options.given_names if not covers(states, name)]
            if missing:
                raise no_such_queue(missing[0])
            check_offsets("startingOffsets", self._options.starting_offsets, states)
            moment = self._options.starting_timestamp
            begins = {} if moment is None else self._broker().numbers_at(states, moment)
            places = {}
            for name, state in states.items():
                begin = begins.get(name, first_number(state, self._options.starting_offsets))
                places[name] = place_of(state, begin, begin)
            # Spark logs only ends, so the first end also has where the query began.
            self._initial = self._offset(places) | {"initial": True}
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._check_version(start)
        if self._options.delete_on_commit == "true" and not start.get("initial"):
            # The micro-batch that ended at `start` is in the commit log. Acknowledge it here, because Spark calls
            # `commit` for a micro-batch only after the next one is in its log.
            self._acknowledge(start)
        states = self._known(self._ask(start["queues"]), start["queues"])
        begins = self._begins(start, states)
        bounded = not isinstance(limit, ReadAllAvailable)
        messages = min(limit.max_rows, UNLIMITED) if isinstance(limit, ReadMaxRows) else None
        ends = share(
            {name: states[name] for name in begins},
            begins,
            messages if bounded and messages != UNLIMITED else None,
            self._options.max_bytes_per_trigger if bounded else None,
        )
        if not self._is_enough(sum(max(states[name].next - begin, 0) for name, begin in begins.items())):
            if self._frozen is None:
                time.sleep(IDLE_PAUSE)
            return start
        places = {}
        for name, place in start["queues"].items():
            # A queue that is gone stays in the offset as it is.
            places[name] = {key: value for key, value in place.items() if key not in OF_MICRO_BATCH}
        for name, end in ends.items():
            before = start["queues"].get(name)
            if end == begins[name] and before is not None and before["id"] == states[name].id:
                continue
            places[name] = {**places.get(name, {}), **place_of(states[name], end, begins[name])}
            if before is None or before["id"] != states[name].id or before["next"] > begins[name]:
                places[name]["begin"] = begins[name]
        offset = unknown_keys(start) | self._offset(places)
        return offset | {"from": start["queues"]} if start.get("initial") else offset

    def _begins(self, start: Mapping[str, Any], states: Mapping[str, QueueState]) -> dict[str, int]:
        """By queue, the first number that the query has not read yet. Raises SparkSourceError E8 for what is lost."""
        begins = {}
        for name, place in start["queues"].items():
            found = loss(name, place, states.get(name))
            if found is not None:
                self._report(found, states.get(name))
            if found is None or found.kind == "below_first":
                begins[name] = place["next"]
            elif found.kind != "deleted":
                begins[name] = states[name].first
        for name, state in states.items():
            if name not in start["queues"]:
                begins[name] = state.first
        return begins

    def _report(self, found: Loss, state: QueueState | None) -> None:
        if found.kind == "below_first":
            cause = cause_of(state)
            error = data_loss(found.queue, found.next - found.first, found.first, found.next - 1, cause)
        else:
            what = {
                "deleted": "it was deleted, or the options do not name it any more",
                "other_queue": "it was deleted and declared again",
                "went_back": f"its next number is {found.first:,}, and was {found.next:,} or more",
            }
            error = queue_gone(found.queue, what[found.kind])
        if self._options.fail_on_data_loss:
            raise error
        if found not in self._reported:
            self._reported.add(found)
            log.warning("%s", error)

    def _is_enough(self, waiting: int) -> bool:
        if not waiting:
            self._waiting_since = None
            return False
        least = self._options.min_messages_per_trigger
        if least is None or waiting >= least or self._frozen is not None:
            self._waiting_since = None
            return True
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._options.max_trigger_delay:
            return False
        self._waiting_since = None
        return True

    def _offset(self, places: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return make_offset(places, int(time.time() * 1000), self._options.max_messages_per_partition)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_messages_per_trigger is None and options.max_bytes_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_messages_per_trigger or UNLIMITED)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if not self._states:
            return None
        return self._offset({name: place_of(state, state.next, state.next) for name, state in self._states.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._ask()

    def _known(
        self, states: Mapping[str, QueueState], places: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, QueueState]:
        """The queues as this run may see them: with AvailableNow without the messages that came after its beginning.

        The query may begin behind where a queue ended then, because Spark asks for the first offset later. A queue that
        the run did not find at its beginning ends at its place.
        """
        if self._frozen is None:
            return dict(states)
        known = {}
        for name, now in states.items():
            place = places.get(name)
            frozen = self._frozen.get(name)
            if frozen is None:
                if place is None:
                    continue
                frozen = QueueState(name, place["next"], place["next"], place["id"], place["life"])
            if now.id != frozen.id:
                # The queue was declared again, so none of its messages belongs to this run. With the present state
                # `_begins` raises the loss; the earlier state leaves the messages out.
                known[name] = now if self._options.fail_on_data_loss else frozen
                continue
            end = frozen.next if place is None or place["id"] != now.id else max(frozen.next, place["next"])
            known[name] = replace(now, next=min(now.next, end))
        return known

    # -- partitions ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check_version(start)
        self._check_version(end)
        if start == end:
            return []
        pieces = plan(start, end, self._options.min_partitions)
        if pieces and not self._states:
            # A query that begins by running a micro-batch again has asked nothing yet.
            self._ask()
        nowhere = QueueState("", 0, 0)
        return [RangePartition(piece, self._states.get(piece.queue, nowhere).endpoints) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return partition.reading(self._options, self._rows).batches()

    # -- commit ---

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.delete_on_commit != "false":
            self._acknowledge(end)

    def _acknowledge(self, offset: Mapping[str, Any]) -> None:
        places = {
            name: place
            for name, place in offset["queues"].items()
            if self._acknowledged.get(name) != (place["id"], place["next"])
        }
        if places:
            done = self._broker().acknowledge(places)
            self._acknowledged.update({name: (places[name]["id"], places[name]["next"]) for name in done})

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _broker(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def _ask(self, known: Iterable[str] = ()) -> dict[str, QueueState]:
        self._states = self._broker().states(known)
        return self._states

    def _check_version(self, offset: Mapping[str, Any]) -> None:
        if offset.get("v") != VERSION:
            places = offset.get("queues")
            numbers = {}
            if isinstance(places, dict):
                numbers = {name: place.get("next") for name, place in places.items() if isinstance(place, dict)}
            raise other_offset_version(offset.get("v"), __version__, VERSION, numbers)
