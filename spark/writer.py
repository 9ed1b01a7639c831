"""The sink: a task publishes its rows with confirms, and succeeds when the broker has confirmed each of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..amqp import methods
from ..amqp.frames import content_body
from .errors import not_deduplicated, not_routed, sink_away, sink_refused, wrong_options
from .guard import Guard
from .options import SinkOptions
from .outgoing import OutgoingPart, RowEncoder
from .pace import RowPace
from .reading.range_reading import task_name
from .unconfirmed import UnconfirmedRows
from .wire import Away, BrokerConnection, ReceivedContent, Refused, Silent

log = logging.getLogger("warren.spark")

#: Bytes that are gathered for one call of `send`, and bytes of bodies that may be unconfirmed.
SEND_BYTES, WINDOW_BYTES = 256 << 10, 8 << 20


@dataclass
class Written(WriterCommitMessage):
    """What a task has published: rows, bytes of bodies, and seconds spent waiting for the broker.

    `window` is the smallest deduplication window of the queues, in messages, for the guarantee `exactly-once`; None
    otherwise.
    """

    rows: int
    body_bytes: int
    waited: float
    window: int | None = None


class RowPublisher:
    """Publishes the rows of one task. Raises SparkSourceError E5, E12 and E13.

    scope    the name within which the ids of rows are unique
    pace     when each row may be published; None for as fast as the broker confirms
    """

    def __init__(self, options: SinkOptions, partition: int, scope: str, pace: RowPace | None = None) -> None:
        self._options = options
        #: The name, in error texts, of the sequence in which rows are counted from 0.
        self.where = f"partition {partition}"
        self._connection = self._connect()
        self._encoder = RowEncoder(
            options.exchange,
            options.routing_key,
            options.mandatory,
            self._connection.frame_max,
            options.id_columns,
            scope,
        )
        #: Checks that each row goes to a queue that drops duplicates; None if rows may be published twice.
        self._guard = Guard(options) if options.delivery_guarantee == "exactly-once" else None
        self._pace = pace
        self._unconfirmed = UnconfirmedRows()
        self._result = Written(0, 0, 0.0)

    def _connect(self) -> BrokerConnection:
        options = self._options
        try:
            connection = BrokerConnection(options, task_name())
            if options.delivery_guarantee == "exactly-once" and "deduplicate" not in connection.features:
                raise not_deduplicated(f"the broker {connection.where} drops no message that is published twice")
            connection.socket.settimeout(options.confirm_timeout)
            connection.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
            return connection
        except Away as away:
            raise sink_away(options.destination, str(away)) from away
        except Refused as refusal:
            raise sink_refused(options.destination, str(refusal)) from refusal

    def publish(self, batches: Iterator[Any]) -> Written:
        """Publish all rows, wait until each is confirmed, and close the connection."""
        try:
            written = self.send(batches)
            self._connection.close()
            return written
        finally:
            self.abort()

    def send(self, batches: Iterator[Any]) -> Written:
        """Publish rows, and wait until each is confirmed; returns what was written so far."""
        try:
            for batch in batches:
                for part in self._encoder.parts(batch):
                    if self._guard is not None:
                        for (exchange, key), rows in part.joined.destinations.items():
                            self._guard.admit(exchange, key, rows)
                    self._send_part(part)
            while self._unconfirmed:
                self._wait()
            if self._guard is not None:
                self._result.window = self._guard.smallest
            return self._result
        except Away as away:
            seconds = f" for {self._options.confirm_timeout:g} s" if isinstance(away, Silent) else ""
            raise sink_away(self._options.destination, f"{away}{seconds}") from away
        except Refused as refusal:
            raise sink_refused(self._options.destination, str(refusal)) from refusal

    def _send_part(self, part: OutgoingPart) -> None:
        """Send the rows of a part, as the window and the rate allow it."""
        unconfirmed, options = self._unconfirmed, self._options
        unconfirmed.add(part)
        at = 0
        while at < len(part):
            most = options.confirm_window - unconfirmed.rows
            if self._pace is not None:
                most = min(most, self._pace.together)
            stop = min(at + most, part.stop_for(at, WINDOW_BYTES - unconfirmed.body_bytes, SEND_BYTES))
            if self._pace is not None:
                self._wait_until(self._pace.due(stop - at, time.monotonic()))
            self._result.rows += stop - at
            self._result.body_bytes += unconfirmed.sent(stop - at)
            left = part.frames(at, stop)
            while left:
                left = self._connection.send_some(left)
                if left:
                    self._take_confirms(wait=False)
            at = stop
            self._take_confirms(wait=self._is_full())

    def abort(self) -> None:
        """Close the socket at once."""
        self._connection.abort()

    def _wait_until(self, moment: float) -> None:
        """Wait, and handle meanwhile what the broker sends."""
        while (left := moment - time.monotonic()) > 0:
            if self._connection.has_input(left):
                self._wait()

    def _is_full(self) -> bool:
        return self._unconfirmed.rows >= self._options.confirm_window or self._unconfirmed.body_bytes >= WINDOW_BYTES

    def _take_confirms(self, wait: bool) -> None:
        """Handle what the broker has sent by now; with `wait`, go on until the window has room again."""
        while self._unconfirmed and (self._connection.has_input() or wait and self._is_full()):
            self._wait()

    def _wait(self) -> None:
        """Wait for a method or a returned message, and handle it. Raises SparkSourceError E12 for nacks and returns."""
        began = time.monotonic()
        found = self._connection.receive()
        self._result.waited += time.monotonic() - began
        if isinstance(found, methods.BasicAck):
            self._unconfirmed.confirm(found.delivery_tag, found.multiple)
        elif isinstance(found, methods.BasicNack):
            message = self._unconfirmed.first() if found.multiple else self._unconfirmed.message(found.delivery_tag)
            raise not_routed(
                self.where, message.row, message.exchange, message.routing_key, "was refused", message.body
            )
        elif isinstance(found, ReceivedContent):
            self._returned(found)

    def _returned(self, found: ReceivedContent) -> None:
        exchange, key, _ = found.published
        body = content_body(found.content)
        raise not_routed(self.where, self._unconfirmed.row_with(body), exchange, key, "reaches no queue", body)


class _Sink:
    """The common part of both writers. Spark makes a new writer for each call, in a process of its own."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _write(self, iterator: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        # A task cannot find out how many tasks of its stage run at the same time, so the option names the most.
        pace = RowPace(self._options.rate / self._options.parallel_tasks) if self._options.rate else None
        scope = query or self._options.job
        if scope is None and self._options.id_columns:
            raise wrong_options(
                "option 'messageId' of format 'warren' needs 'job' in a batch: ids consist of the job's name and the "
                "value of the column, so a queue would drop the rows of a batch that has the values of another one. "
                "Give each batch a name, and the same name only to repeat one"
            )
        return RowPublisher(self._options, partition, scope or "", pace).publish(iterator)

    def _committed(self, messages: Sequence[Any]) -> None:
        done = [message for message in messages if message is not None]
        log.info(
            "published %d rows, %d bytes; waited %.1f s for the broker",
            sum(each.rows for each in done),
            sum(each.body_bytes for each in done),
            sum(each.waited for each in done),
        )
        rows, window = sum(each.rows for each in done), min((each.window for each in done if each.window), default=0)
        if window and rows > window:
            log.warning(
                "a write had %d rows, and the deduplication window of a queue has only %d messages: if the driver had "
                "died before the end, repeating the write could have published some rows twice. Write fewer rows at a "
                "time, or give the queue a larger window by x-warren-deduplicate or a policy",
                rows,
                window,
            )

    def _aborted(self, messages: Sequence[Any]) -> None:
        done = [message for message in messages if message is not None]
        log.warning(
            "a write failed: %d rows of %d finished tasks are published, and come again if the write is repeated",
            sum(each.rows for each in done),
            len(done),
        )


class BatchWriter(_Sink, DataSourceArrowWriter):
    """`rows.write.format("warren")`."""

    def write(self, iterator: Iterator[Any]) -> Written:
        return self._write(iterator)

    def commit(self, messages: list[Any]) -> None:
        self._committed(messages)

    def abort(self, messages: list[Any]) -> None:
        self._aborted(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """`rows.writeStream.format("warren")`."""

    def write(self, iterator: Iterator[Any]) -> Written:
        return self._write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._committed(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._aborted(messages)
