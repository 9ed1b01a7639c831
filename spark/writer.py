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
from .errors import broker_away, not_deduplicated, not_routed, refused
from .guard import Guard
from .options import SinkOptions
from .outgoing import OutgoingMessage, RowEncoder
from .reading.range_reading import task_name
from .wire import Away, BrokerConnection, ReceivedContent, Refused

log = logging.getLogger("warren.spark")

#: Bytes that are gathered for one call of `send`, and bytes of bodies that may be unconfirmed.
SEND_BYTES, WINDOW_BYTES = 256 << 10, 8 << 20
#: With a rate: if the broker delays the writer by at most so many seconds, the writer sends faster until it has caught
#: up. It does not make up for a longer delay.
CATCH_UP = 0.1


@dataclass
class Written(WriterCommitMessage):
    """What a task has published: rows, bytes of bodies, and seconds spent waiting for the broker.

    `window` is the smallest deduplication window of the queues, for the guarantee `exactly-once`; None otherwise.
    """

    rows: int
    body_bytes: int
    waited: float
    window: int | None = None


class RowPublisher:
    """Publishes the rows of one task. Raises SparkSourceError E5, E12 and E13."""

    def __init__(self, options: SinkOptions, partition: int, tasks: int, scope: str) -> None:
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
        self._interval = tasks / options.rate if options.rate else 0.0
        #: When the rate allows the next message; 0 before the first one.
        self._due = 0.0
        #: Messages that are not confirmed, by their publish number.
        self._unconfirmed: dict[int, OutgoingMessage] = {}
        self._unconfirmed_bytes = 0
        self._number = 0
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
            raise broker_away(options.exchange, str(away), options.connect_timeout, None) from away
        except Refused as refusal:
            raise refused(options.exchange, str(refusal)) from refusal

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
            self._due = self._due or time.monotonic()
            waiting: list[bytes] = []
            size = 0
            for batch in batches:
                for message in self._encoder.messages(batch):
                    if self._guard is not None:
                        self._guard.admit(message.exchange, message.routing_key)
                    self._number += 1
                    self._unconfirmed[self._number] = message
                    self._unconfirmed_bytes += len(message.body)
                    self._result.rows += 1
                    self._result.body_bytes += len(message.body)
                    waiting.append(message.frames)
                    size += len(message.frames)
                    is_full = self._is_full()
                    if size >= SEND_BYTES or is_full or self._interval:
                        self._connection.send_bytes(b"".join(waiting))
                        waiting, size = [], 0
                        self._take_confirms(wait=is_full)
                    if self._interval:
                        self._pace()
            if waiting:
                self._connection.send_bytes(b"".join(waiting))
            while self._unconfirmed:
                self._wait()
            if self._guard is not None:
                self._result.window = self._guard.smallest
            return self._result
        except Away as away:
            raise broker_away(self._options.exchange, str(away), self._options.confirm_timeout, None) from away
        except Refused as refusal:
            raise refused(self._options.exchange, str(refusal)) from refusal

    def abort(self) -> None:
        """Close the socket at once."""
        self._connection.abort()

    def _pace(self) -> None:
        """Wait until the rate allows the next message; take confirms meanwhile."""
        self._due = max(self._due, time.monotonic() - CATCH_UP) + self._interval
        while (left := self._due - time.monotonic()) > 0:
            if self._connection.has_input(left):
                self._take_confirms(wait=False)

    def _is_full(self) -> bool:
        return len(self._unconfirmed) >= self._options.confirm_window or self._unconfirmed_bytes >= WINDOW_BYTES

    def _take_confirms(self, wait: bool) -> None:
        while self._unconfirmed and (self._connection.has_input() or wait and self._is_full()):
            self._wait()

    def _wait(self) -> None:
        began = time.monotonic()
        found = self._connection.receive()
        self._result.waited += time.monotonic() - began
        if isinstance(found, methods.BasicAck):
            self._confirm(found.delivery_tag, found.multiple)
        elif isinstance(found, methods.BasicNack):
            message = self._unconfirmed[found.delivery_tag if not found.multiple else next(iter(self._unconfirmed))]
            raise not_routed(
                self.where, message.row, message.exchange, message.routing_key, "was refused", message.body
            )
        elif isinstance(found, ReceivedContent) and isinstance(found.method, methods.BasicReturn):
            self._returned(found)

    def _confirm(self, number: int, is_multiple: bool) -> None:
        if not is_multiple:
            self._unconfirmed_bytes -= len(self._unconfirmed.pop(number).body)
            return
        for each in list(self._unconfirmed):
            if each > number:
                break
            self._unconfirmed_bytes -= len(self._unconfirmed.pop(each).body)

    def _returned(self, found: ReceivedContent) -> None:
        method, body = found.method, content_body(found.content)
        assert isinstance(method, methods.BasicReturn)
        row = next((each.row for each in self._unconfirmed.values() if each.body == body), -1)
        raise not_routed(self.where, row, method.exchange, method.routing_key, "reaches no queue", body)


class _Sink:
    """The common part of both writers. Spark makes a new writer for each call, in a process of its own."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _write(self, iterator: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        # A task cannot find out how many tasks of its stage run at the same time; this is the most.
        tasks = self._options.parallel_tasks
        scope = query or self._options.job or "batch"
        return RowPublisher(self._options, partition, tasks, scope).publish(iterator)

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
