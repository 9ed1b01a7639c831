"""`spark.read` on a running broker: the planner fixes the ranges, and the tasks read them without consuming."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from ..endpoints import Endpoint
from ..errors import broker_away, no_such_queue, refused, wrong_options
from ..options import BatchOptions, StreamOptions
from ..rows.columns import RowPlan
from ..wire import Away, BrokerConnection, Refused
from .arrivals import number_at
from .catalogue import covers, states, subscribe
from .offsets import QueueRange, QueueState, cut_pieces, first_number, without_gaps
from .range_reading import RangeReading, task_name

log = logging.getLogger("warren.spark")

#: What the planner's connection is called in the broker's listings.
PLANNER = "spark/reading/planner"


class RangePartition(InputPartition):
    """One task's part of a queue. It has neither options nor password: those travel with the reader."""

    def __init__(self, piece: QueueRange, endpoints: Sequence[Endpoint] = ()) -> None:
        super().__init__(tuple(piece))
        self.piece = piece
        #: See `QueueState.endpoints`.
        self.endpoints = tuple(endpoints)

    def reading(self, options: BatchOptions | StreamOptions, rows: RowPlan, name: str | None = None) -> RangeReading:
        """How the task that has this partition reads it. The broker lists its connection under the name; by default
        that is made of the query and the partition.
        """
        name = name or task_name()
        return RangeReading(options, self.piece, rows, options.fail_on_data_loss, name, self.endpoints)


class BatchReader(DataSourceReader):
    """Reads queues of a running broker."""

    def __init__(self, options: BatchOptions, rows: RowPlan) -> None:
        self._options = options
        self._rows = rows
        #: The queues and the numbers that Spark's filters leave; by default all.
        self._queues: set[str] | None = None
        self._low, self._high = 0, 1 << 62

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        left_out: dict[str, str] | None = {} if options.skip_unreadable else None
        found = ask_states(options, left_out)
        for name, reason in (left_out or {}).items():
            log.warning("queue '%s' is left out, because it cannot be read by number: %s", name, reason)
        check_offsets("startingOffsets", options.starting_offsets, found)
        check_offsets("endingOffsets", options.ending_offsets, found)
        begins = self._begins(found)
        pieces = []
        for state in found.values():
            if self._queues is not None and state.name not in self._queues:
                continue
            first = max(begins[state.name], state.first, self._low)
            stop = min(self._end(state), self._high)
            for span in without_gaps(first, stop, state.gaps, state.life):
                pieces.append(QueueRange(state.name, span.start, span.stop, state.id, state.life))
        return [
            RangePartition(piece, found[piece.queue].endpoints)
            for piece in cut_pieces(pieces, options.max_messages_per_partition, options.min_partitions)
        ]

    def _begins(self, found: Mapping[str, QueueState]) -> dict[str, int]:
        """The number at which each queue begins."""
        moment = self._options.starting_timestamp
        if moment is None:
            return {name: first_number(state, self._options.starting_offsets) for name, state in found.items()}
        with _connected(self._options) as connection:
            return {name: number_at(connection, state, moment) for name, state in found.items()}

    def _end(self, state: QueueState) -> int:
        wanted = self._options.ending_offsets
        return state.next if wanted == "latest" else first_number(state, _with_default(wanted, state.name))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark runs a task with a partition of its own if there are none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return partition.reading(self._options, self._rows).batches()


class FilteringBatchReader(BatchReader):
    """Takes filters on `queue` and `seq`. Spark refuses a reader that could take them unless a setting allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, each: Filter) -> bool:
        column = getattr(each, "attribute", None)
        if column == ("queue",) and isinstance(each, (EqualTo, In)):
            values = {each.value} if isinstance(each, EqualTo) else set(each.value)
            self._queues = values if self._queues is None else self._queues & values
            return True
        if column != ("seq",) or not isinstance(getattr(each, "value", None), int):
            return False
        if isinstance(each, (EqualTo, GreaterThan, GreaterThanOrEqual)):
            self._low = max(self._low, each.value + isinstance(each, GreaterThan))
        if isinstance(each, (EqualTo, LessThan, LessThanOrEqual)):
            self._high = min(self._high, each.value + (not isinstance(each, LessThan)))
        return isinstance(each, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual))


def unreadable_queues(options: BatchOptions) -> dict[str, str]:
    """The queues that fit the pattern and cannot be read by number, with the reasons. Raises SparkSourceError, also for
    a queue that the options name and that cannot be read.
    """
    found: dict[str, str] = {}
    ask_states(options, None if options.pattern is None else found)
    return found


def ask_states(options: Any, unreadable: dict[str, str] | None = None) -> dict[str, QueueState]:
    """The queues that the options name, as they are now; for `unreadable` see `states`. Raises SparkSourceError E3, E4
    and E5.
    """
    with _connected(options) as connection:
        subscribe(connection, options)
        found = states(connection, options.given_names, options.pattern, unreadable)
    for name in options.given_names:
        if not covers(found, name):
            raise no_such_queue(name)
    return found


def check_offsets(option: str, wanted: Any, found: Mapping[str, QueueState]) -> None:
    """Raise SparkSourceError E4 if an option gives the number of a queue that is not read."""
    unknown = sorted(wanted.keys() - found.keys()) if isinstance(wanted, dict) else []
    if unknown:
        names = sorted(found)
        read = ", ".join(names[:10]) + (" and others" if len(names) > 10 else "")
        raise wrong_options(
            f"option '{option}' of format 'warren' names the queue '{unknown[0]}', which this query does not read. It "
            f"reads {read or 'no queue'}"
        )


@contextmanager
def _connected(options: Any) -> Iterator[BrokerConnection]:
    """A connection to the broker, whose failures become errors of the source. Raises SparkSourceError E3 and E5."""
    shown = ", ".join(options.given_names) or options.pattern
    try:
        connection = BrokerConnection(options, PLANNER)
        try:
            connection.require_warren()
            yield connection
        finally:
            connection.close()
    except Away as away:
        raise broker_away(shown, str(away), options.connect_timeout, None) from away
    except Refused as refusal:
        raise refused(shown, str(refusal)) from refusal


def _with_default(wanted: Any, name: str) -> Any:
    return wanted if not isinstance(wanted, dict) or name in wanted else "latest"
