"""The job `replay` publishes archived messages to an exchange or a queue again, in the order of each source queue.

The job reads Parquet files and publishes from this process, so it needs neither a Spark session nor Java. After each
part of a queue it notes in the archive the number at which that queue goes on; a later run of the same name begins
there.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...amqp.properties import Properties, decode_properties, encode_properties
from ..archive.chosen_messages import Choice, chosen_rows, queues_to_replay
from ..archive.hidden_file import sync_folder
from ..archive.notes import OWN, ArchivedFile, alone, replace_text, require_archive
from ..errors import SparkSourceError, broker_away, refused, wrong_option, wrong_options
from ..options import SinkOptions
from ..outgoing import with_id
from ..pace import RowPace
from ..wire import Away, BrokerConnection, Refused
from ..writer import RowPublisher

#: Messages that are published and confirmed between two notes of the number at which the run goes on.
PART = 10_000
#: The header by which a replayed message is known: the name of the run.
HEADER = "x-warren-replay"
#: Seconds after which the number at which a run goes on is written although no part is complete.
NOTED = 1.0
#: Seconds by which a message may be published too early, so that messages close to each other are published together.
FINEST = 0.005
#: Seconds after which a run that waits for messages to be due asks again whether it is to end.
LOOK = 0.25
#: Queues that are replayed side by side.
SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class ReplayResult:
    """What a run has published, or would publish: queues, messages, bytes of bodies, and the times of arrival.

    may_repeat        the most messages that may be published twice, because an earlier run of this name was killed
    is_interrupted    whether `stop` ended the run
    seconds           of a dry run: how long the run will take at its rate or speed, if it has one
    """

    queues: int
    messages: int
    bytes: int
    first: datetime | None
    last: datetime | None
    may_repeat: int
    is_interrupted: bool = False
    seconds: float | None = None


def replay(
    target: str,
    *,
    exchange: str | None = None,
    routing_key: str | None = None,
    to_queue: str | None = None,
    queue: str | Sequence[str] | None = None,
    routing_keys: str | None = None,
    message_id: str | None = None,
    correlation_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    rate: int | None = None,
    speed: float | None = None,
    name: str = "replay",
    deduplicate: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> ReplayResult:
    """Publish the messages of the archive `target`.

    exchange, to_queue      where; `exchange` with each message's own key, or with `routing_key`
    queue                   only the messages of this source queue or of its shards, or of several queues
    routing_keys            only messages whose key fits this pattern of `*` and `?`
    message_id, correlation_id
                            only messages with these properties
    since, until            only messages that arrived between these times, both included; with one of them given,
                            messages whose arrival is not known are left out
    rate                    messages a second, evenly, of all queues together; otherwise as fast as the broker confirms
    speed                   instead: in the rhythm in which they arrived, this many times as fast; a message whose
                            arrival is not known follows the one before it at once
    name                    a run of this name goes on where an earlier one stopped; E7 while another one runs
    deduplicate             give each message an id, so that a queue with `x-warren-deduplicate` drops repeated ones
    dry_run                 publish nothing, and count the messages that this run would publish
    on_progress             gets the number of messages that were published so far
    stop                    asked about once a second or more often; when it returns True, the run ends when what it has
                            sent is confirmed
    options                 how to reach the broker: `url` and others

    Raises SparkSourceError.
    """
    if (exchange is None) == (to_queue is None):
        raise wrong_options("a replay needs either an exchange or a queue as its target")
    if rate is not None and speed is not None:
        raise wrong_options("a replay has either a rate or a speed")
    if rate is not None and rate < 1:
        raise wrong_option("rate", str(rate), "a number above 0")
    if speed is not None and not 0 < speed < math.inf:
        raise wrong_option("speed", f"{speed:g}", "a number above 0")
    target = require_archive(target)
    queues = queues_to_replay(target, [queue] if isinstance(queue, str) else queue)
    chosen = Choice(routing_keys, since, until, message_id, correlation_id)
    notes = _Notes(target, name)
    if dry_run:
        counted = _counted(target, queues, chosen, notes, deduplicate)
        return dataclasses.replace(counted, seconds=_seconds(counted, rate, speed))
    sink = SinkOptions.parse(
        {
            **{key: str(value) for key, value in options.items() if value is not None},
            "exchange": exchange or "",
            "routingKey": routing_key or to_queue or "",
        }
    )
    if to_queue is not None:
        _require_queue(sink, to_queue)
    # Two runs of one name would publish the same messages, and each would replace the notes of the other.
    with alone(target, f"replay/{name}"):
        notes.load()
        side_by_side = min(SIDE_BY_SIDE, len(queues))
        run = _Run(stop, on_progress)
        if rate is not None:
            run.pace = RowPace(rate)
            # While all threads publish, a part takes about a second, after which the run can end.
            run.rows = min(PART, max(1, rate // side_by_side))
        if speed is not None:
            # Each queue has a thread, or one would wait for its turn while its messages are due.
            side_by_side = len(queues)
            firsts = [chosen_rows(target, files, chosen, notes.get(key)[0]) for key, files in queues.items()]
            run.rhythm = _Rhythm.of(firsts, speed)

        def one(key: tuple[str, str], files: Sequence[ArchivedFile]) -> ReplayResult:
            work = _Replay(target, sink, run, name, notes, chosen, deduplicate)
            work.own_key = to_queue is None and routing_key is None
            with run.taking_part():
                return work.run(key, files)

        with ThreadPoolExecutor(side_by_side) as pool:
            return _united(list(pool.map(one, queues.keys(), queues.values())))


class _Run:
    """What the threads of a run share: when messages may be published, whether the run is to end, and its progress."""

    #: When messages are due at a rate. All queues share it, so that one has the whole rate when the others have ended.
    pace: RowPace | None = None
    #: When messages are due in the rhythm in which they arrived.
    rhythm: _Rhythm | None = None

    def __init__(self, stop: Callable[[], bool] | None, on_progress: Callable[[int], None] | None) -> None:
        #: The most messages that a queue publishes before it asks whether the run is to end.
        self.rows = PART
        self._stop, self._on_progress = stop, on_progress
        self._lock = threading.Lock()
        self._has_failed = False
        self._sent = 0

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """A queue is replayed within the block. If that fails, the other queues end too, so that the user learns of the
        failure at once.
        """
        try:
            yield
        except BaseException:
            self._has_failed = True
            raise

    def is_to_end(self) -> bool:
        return self._has_failed or self._stop is not None and self._stop()

    def progressed(self, count: int) -> None:
        with self._lock:
            self._sent += count
            if self._on_progress is not None:
                self._on_progress(self._sent)


def _require_queue(sink: SinkOptions, queue: str) -> None:
    """Raise SparkSourceError E5 unless the queue exists."""
    try:
        connection = BrokerConnection(sink, "spark/replay")
        try:
            if not connection.declare_passively(queue):
                raise SparkSourceError("E5", f"there is no queue '{queue}' to publish into: declare it first")
        finally:
            connection.close()
    except Away as away:
        raise broker_away(queue, str(away), sink.connect_timeout, None) from away
    except Refused as refusal:
        raise refused(queue, str(refusal)) from refusal


class _Replay:
    """Publishes the messages of one queue."""

    #: Whether each message keeps its routing key.
    own_key = True

    def __init__(
        self,
        target: str,
        sink: SinkOptions,
        shared: _Run,
        name: str,
        notes: _Notes,
        chosen: Choice,
        deduplicate: bool,
    ) -> None:
        self._target, self._sink, self._shared, self._name = target, sink, shared, name
        self._notes, self._chosen, self._deduplicate = notes, chosen, deduplicate
        self._marked: dict[bytes, bytes] = {}

    def run(self, key: tuple[str, str], files: Sequence[ArchivedFile]) -> ReplayResult:
        after, was_begun = self._notes.get(key)
        publisher = RowPublisher(self._sink, 0, self._name, self._shared.pace)
        publisher.where = f"this run's messages of queue '{key[0]}'"
        messages = size = pending = 0
        noted_at = time.monotonic()
        first = last = None
        is_interrupted = False
        try:
            for batch in self._due(chosen_rows(self._target, files, self._chosen, after)):
                if batch is None or self._shared.is_to_end():
                    is_interrupted = True
                    break
                if not pending or pending + batch.num_rows > PART or time.monotonic() - noted_at > NOTED:
                    self._notes.begin(key, after)
                    pending, noted_at = 0, time.monotonic()
                publisher.send(iter([self._outgoing(key, batch)]))
                after = batch.column("seq")[batch.num_rows - 1].as_py() + 1
                pending += batch.num_rows
                messages += batch.num_rows
                size += sum(map(len, batch.column("body").to_pylist()))
                least, most = _span(batch)
                first, last = first or least, most or last
                self._shared.progressed(batch.num_rows)
            if pending:
                self._notes.put(key, after)
            may_repeat = PART if was_begun and not self._deduplicate else 0
            return ReplayResult(1, messages, size, first, last, may_repeat, is_interrupted)
        finally:
            publisher.abort()

    def _due(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, or parts of them as soon as they are due; None if the run is to end before the next one."""
        if self._shared.rhythm is not None:
            yield from self._shared.rhythm.parts(batches, self._shared.is_to_end)
            return
        rows = self._shared.rows
        for batch in batches:
            for at in range(0, batch.num_rows, rows):
                yield batch.slice(at, rows)

    def _outgoing(self, key: tuple[str, str], batch: Any) -> Any:
        """The batch as the sink takes it: with the header of this run, and with an id if there is to be one."""
        encoded = [self._mark(props) for props in batch.column("properties").to_pylist()]
        if self._deduplicate:
            prefix = f"{self._name}/{key[1]}"
            encoded = [
                with_id(props, f"{prefix}/{number}") for props, number in zip(encoded, batch.column("seq").to_pylist())
            ]
        columns = {"body": batch.column("body"), "properties": pa.array(encoded, pa.binary())}
        if self.own_key:
            columns["routing_key"] = batch.column("routing_key")
        return pa.RecordBatch.from_pydict(columns)

    def _mark(self, props: bytes) -> bytes:
        marked = self._marked.get(props)
        if marked is None:
            try:
                found = decode_properties(props)
            except AmqpError:
                found = Properties(delivery_mode=2)
            found.headers = (found.headers or Table()).replaced(HEADER, "S", self._name.encode())
            if len(self._marked) > 4096:
                self._marked.clear()
            marked = self._marked[props] = encode_properties(found)
        return marked


class _Rhythm:
    """When messages are due that are published in the rhythm in which they arrived. All queues of a run share it.

    first    when the first message of all arrived, in microseconds; it is due at once
    speed    how many times as fast the messages are published as they arrived
    """

    def __init__(self, first: int, speed: float) -> None:
        self._first = first
        self._speed = speed
        self._began = time.monotonic()

    @classmethod
    def of(cls, queues: Iterable[Iterator[Any]], speed: float) -> _Rhythm:
        """The rhythm of these queues, each given as its batches, of which only the first one is read."""
        arrivals = [_arrivals(batch) for batches in queues for batch in itertools.islice(batches, 1)]
        known = [each[each != _UNKNOWN].min(initial=_NEVER) for each in arrivals]
        return cls(int(min(known, default=_NEVER)), speed)

    def parts(self, batches: Iterator[Any], stop: Callable[[], bool] = lambda: False) -> Iterator[Any]:
        """The rows of these batches, in parts, each as soon as its last row is due; a last None if `stop` returns True
        before the next one is due.
        """
        for batch in batches:
            due = numpy.maximum.accumulate((_arrivals(batch) - self._first) / (1e6 * self._speed))
            at = 0
            while at < batch.num_rows:
                late = time.monotonic() - self._began - due[at]
                if late < -FINEST:
                    if stop():
                        yield None
                        return
                    time.sleep(min(-late, LOOK))
                    continue
                # All rows that are due by now or within `FINEST` seconds.
                behind = max(at + 1, int(numpy.searchsorted(due, due[at] + late + FINEST, side="right")))
                yield batch.slice(at, behind - at)
                at = behind


#: Stands for an unknown time of arrival. It is earlier than all others, so its message is due at once.
_UNKNOWN = -(1 << 62)
#: Later than every time of arrival: the first arrival among messages of which no arrival is known.
_NEVER = 1 << 62


def _arrivals(batch: Any) -> Any:
    """When the rows of a batch arrived, in microseconds since the epoch, as an array of numpy."""
    return pa.compute.fill_null(batch.column("arrived").cast(pa.int64()), _UNKNOWN).to_numpy()


def _span(batch: Any) -> tuple[datetime | None, datetime | None]:
    """When the first and the last of the rows arrived of which that is known."""
    found = pa.compute.min_max(batch.column("arrived"))
    return found["min"].as_py(), found["max"].as_py()


class _Notes:
    """The numbers at which a run goes on in each queue, in a file of the archive.

    A part that was begun and not ended may have been published already.
    """

    def __init__(self, target: str, name: str) -> None:
        if not name or "/" in name or name.startswith("."):
            raise wrong_options(f"'{name}' cannot be the name of a replay: it becomes the name of a file")
        self._folder = f"{target}/{OWN}/replay"
        self._path = f"{self._folder}/{name}.json"
        self._lock = threading.Lock()
        self._places: dict[str, list[Any]] = {}
        self.load()

    def load(self) -> None:
        """Read what earlier runs have noted."""
        if os.path.exists(self._path):
            with open(self._path, encoding="utf-8") as file:
                self._places = json.load(file)

    def get(self, key: tuple[str, str]) -> tuple[int, bool]:
        """The number at which a queue goes on, and whether an earlier run had begun the part from there on."""
        number, was_begun = self._places.get("/".join(key), (0, False))
        return number, was_begun

    def begin(self, key: tuple[str, str], number: int) -> None:
        self._note(key, [number, True])

    def put(self, key: tuple[str, str], number: int) -> None:
        self._note(key, [number, False])

    def _note(self, key: tuple[str, str], place: list[Any]) -> None:
        with self._lock:
            self._places["/".join(key)] = place
            if not os.path.isdir(self._folder):
                os.makedirs(self._folder, exist_ok=True)
                sync_folder(os.path.dirname(self._folder))
            replace_text(self._path, json.dumps(self._places))


def _counted(
    target: str,
    queues: dict[tuple[str, str], list[ArchivedFile]],
    chosen: Choice,
    notes: _Notes,
    deduplicate: bool,
) -> ReplayResult:
    """What a run with these notes would publish."""
    found = []
    for key, files in queues.items():
        after, was_begun = notes.get(key)
        messages = size = 0
        first = last = None
        for batch in chosen_rows(target, files, chosen, after):
            messages += batch.num_rows
            size += pa.compute.sum(pa.compute.binary_length(batch.column("body"))).as_py() or 0
            least, most = _span(batch)
            first, last = first or least, most or last
        may_repeat = PART if was_begun and not deduplicate else 0
        found.append(ReplayResult(1, messages, size, first, last, may_repeat))
    return _united(found)


def _seconds(counted: ReplayResult, rate: int | None, speed: float | None) -> float | None:
    """How long it takes to publish the counted messages."""
    if rate is not None:
        return counted.messages / rate
    if speed is not None and counted.first is not None and counted.last is not None:
        return (counted.last - counted.first).total_seconds() / speed
    return None


def _united(found: Sequence[ReplayResult]) -> ReplayResult:
    return ReplayResult(
        len(found),
        sum(each.messages for each in found),
        sum(each.bytes for each in found),
        min((each.first for each in found if each.first is not None), default=None),
        max((each.last for each in found if each.last is not None), default=None),
        sum(each.may_repeat for each in found),
        any(each.is_interrupted for each in found),
    )
