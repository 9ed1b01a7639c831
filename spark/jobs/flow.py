"""The job `flow`: where the bottleneck of a broker is, and when.

    nodes ─► amq.rabbitmq.event ─► the job's own queue ─► Spark: sums by window ─► Windows ─► FlowTable

Each node of the broker publishes a sample of flow control each second while a queue is bound to that. The job declares
such a queue, reads it as a stream, and has Spark sum the samples up by window of time, node, and object or cause. Sums
of a window that come again, because more samples have come or because a run goes on, replace the earlier ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...amqp import methods
from ...amqp.fields import table_from
from ..archive.notes import OWN
from ..errors import broker_away, no_samples, refused, wrong_option
from ..options import ConnectionOptions
from ..wire import Away, BrokerConnection, Refused
from .archive import spelt
from .flow_table import FlowTable
from .flow_windows import LATE, FlowResult, FlowRow, Sums, WindowKey, Windows, consumed_rows, summary

#: Where the broker publishes samples, and their key.
EXCHANGE, SAMPLE = "amq.rabbitmq.event", "flow.sample"
#: The job's queue keeps at most this many samples and bytes, the newest ones.
MOST_SAMPLES, MOST_BYTES = 50_000, 512 << 20
#: Seconds after which the queue is deleted if nobody reads it: the job was killed, and nobody has started it again.
EXPIRES = 1800
#: Seconds between two declarations that keep the queue from expiring, between two micro-batches, and between two looks
#: at whether the query has ended.
ALIVE, TRIGGER, LOOK = 60.0, 5.0, 0.25
#: The result and the report of a run cover at most this many seconds, the last ones, because all windows of a long run
#: are too many to draw.
REPORTED = 24 * 3600
#: The heartbeat timeout of the job's connection in seconds, and the seconds between two heartbeats that the job sends.
HEARTBEAT, BEAT = 60, 15.0

_VERDICT = "bottleneck string, subject string, connections int, share double, evidence string, advice string"
_SAMPLE = (
    "at bigint, node string, seconds double, published bigint, confirmed bigint, delivered bigint, acked bigint, "
    "objects array<struct<stage string, name string, vhost string, blocked double, unacked bigint, consumers int, "
    "acked bigint>>, "
    f"verdicts array<struct<{_VERDICT}>>"
)
_COUNTS = ("published", "confirmed", "delivered", "acked")

#: A sample stands for the second before it, so its moment is in the middle of that.
_MOMENT = "timestamp_millis(bigint(sample.at - 500 * sample.seconds)) as moment"
#: An expression that makes rows of a sample, one for each part of it. All rows have the same fields, so that one
#: aggregation sums all of them up.
_PARTS = f"""
    explode(concat(
        array(struct(
            'node' as kind, '' as stage, '' as object, sample.seconds as value, 0 as connections, '' as evidence,
            '' as advice, {", ".join(f"sample.{name} as {name}" for name in _COUNTS)}
        )),
        transform(filter(sample.objects, one -> one.blocked > 0), one -> struct(
            'object' as kind, one.stage as stage,
            if(one.stage = 'queue', concat("queue '", one.name, "' in vhost '", one.vhost, "'"),
               concat(one.stage, ' ', one.name)) as object,
            one.blocked as value, 0 as connections, '' as evidence, '' as advice,
            {", ".join(f"0L as {name}" for name in _COUNTS)}
        )),
        transform(filter(sample.objects, one -> one.consumers > 0), one -> struct(
            'consumed' as kind, one.vhost as stage, one.name as object, one.unacked * sample.seconds as value,
            one.consumers as connections, '' as evidence, '' as advice,
            0L as published, 0L as confirmed, 0L as delivered, one.acked as acked
        )),
        transform(sample.verdicts, one -> struct(
            'verdict' as kind, if(one.bottleneck = 'resource alarm', 'alarm', one.bottleneck) as stage,
            one.subject as object, one.share as value, one.connections as connections, one.evidence as evidence,
            one.advice as advice, {", ".join(f"0L as {name}" for name in _COUNTS)}
        ))
    )) as part
"""


def flow(
    spark: Any,
    *,
    window: float = 10.0,
    last: float | None = None,
    to: str | None = None,
    report: str | None = None,
    on_window: Callable[[list[FlowRow]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> FlowResult:
    """Find out which stage holds connections back, by windows of time.

    window       seconds of a window
    last         seconds after which the run ends; otherwise KeyboardInterrupt or `stop` ends it
    to           a folder for the table, where a later run goes on; otherwise the table is not kept
    report       write a page of HTML there
    on_window    called with the rows of each window and node, when a later one has begun
    stop         asked a few times a second; when it returns True, the run ends and the report is written
    options      how to reach the broker: `url` and others

    The broker must have the setting `event_exchange_vhost`, and the URL its virtual host. Raises SparkSourceError.
    """
    width = int(window)
    if width != window or width < 1:
        raise wrong_option("window", f"{window:g}s", "whole seconds, 1 or more")
    given = spelt(options)
    folder = os.path.abspath(to) if to is not None else tempfile.mkdtemp(prefix="warren-flow-")
    try:
        table = FlowTable(folder)
        windows = Windows(width)
        windows.update(table.begin(width))
        with _Samples(ConnectionOptions.parse(given), f"spark.flow.{_digest(folder)}") as samples:
            began = int(time.time()) // width * width
            windows.remember(table.rows_from(datetime.fromtimestamp(began - 2 * (width + LATE), UTC)))
            written = _Writer(windows, table, on_window)
            stream = spark.readStream.format("warren").options(**given, **_reading(samples.queue)).load()
            try:
                is_interrupted = _run(_summed(stream, width), samples, written, folder, last, stop)
            finally:
                # The report is written even if the broker went away: what happened until then matters most.
                rows = written.rows()
                if report is not None:
                    _write_report(report, rows, width)
        return summary(rows, is_interrupted)
    finally:
        if to is None:
            shutil.rmtree(folder, ignore_errors=True)


def _write_report(path: str, rows: Sequence[FlowRow], width: int) -> None:
    from .flow_report import flow_page

    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(flow_page(rows, summary(rows).bottlenecks, width))


def _digest(folder: str) -> str:
    """A name for the queue of the runs that write into this folder."""
    return hashlib.sha256(folder.encode()).hexdigest()[:12]


def _reading(queue: str) -> dict[str, str]:
    """The options of the stream. Samples that the queue has dropped by its limit are no error."""
    return {
        **{"queue": queue, "columns": "seq,body", "bodyFormat": "text", "minPartitions": "1"},
        **{"deleteOnCommit": "true", "failOnDataLoss": "false"},
    }


def _summed(stream: Any, width: int) -> Any:
    """Sums of the samples by window, node, and object or cause."""
    from pyspark.sql import functions

    parts = (
        stream.select(functions.from_json("body", _SAMPLE).alias("sample"))
        .where("sample.at is not null")
        .selectExpr(_MOMENT, "sample.node as node", _PARTS)
        .withWatermark("moment", f"{LATE} seconds")
    )
    by = [functions.window("moment", f"{width} seconds"), "node", "part.kind", "part.stage", "part.object"]
    return parts.groupBy(*by).agg(
        functions.count("*").alias("samples"),
        functions.sum("part.value").alias("value"),
        functions.max("part.connections").alias("connections"),
        functions.max_by("part.evidence", "part.value").alias("evidence"),
        functions.max("part.advice").alias("advice"),
        *(functions.sum(f"part.{name}").alias(name) for name in _COUNTS),
    )


def _run(
    sums: Any,
    samples: _Samples,
    written: _Writer,
    folder: str,
    last: float | None,
    stop: Callable[[], bool] | None,
) -> bool:
    """Run the query until it is time or it is interrupted; returns whether it was interrupted."""
    query = (
        sums.writeStream.queryName("flow")
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/{OWN}/checkpoint")
        .trigger(processingTime=f"{TRIGGER:g} seconds")
        .foreachBatch(written.batch)
        .start()
    )
    end = None if last is None else time.monotonic() + last
    try:
        while not query.awaitTermination(LOOK):
            samples.stay()
            if stop is not None and stop():
                return True
            if end is not None and time.monotonic() >= end:
                samples.unbind()
                query.processAllAvailable()
                break
    except KeyboardInterrupt:
        return True
    finally:
        with suppress(Exception):  # An interrupted query may have failed, and the error that counts is raised already.
            query.stop()
        written.end()
    return False


class _Writer:
    """Takes the sums of each micro-batch, writes the rows into the table, and calls `on_window` with them."""

    def __init__(self, windows: Windows, table: FlowTable, on_window: Callable[[list[FlowRow]], None] | None) -> None:
        self._windows, self._table, self._on_window = windows, table, on_window
        #: When the first window that this run has seen began, and the last one, in seconds since the epoch.
        self._first, self._last = 1 << 62, 0
        #: The rows of windows that were not shown yet, by start and node.
        self._unshown: dict[tuple[int, str], list[FlowRow]] = {}
        self._shown_to = 0

    def batch(self, found: Any, number: int) -> None:
        """Take the sums of a micro-batch. Spark may call this twice with the same one."""
        sums = _read_sums(found.collect())
        if not sums:
            return
        self._windows.update(sums)
        self._first = min(self._first, *(key.start for key, _ in sums))
        self._last = max(self._last, *(key.start for key, _ in sums))
        kept = list(self._windows.sums())
        rows = self._windows.rows()
        self._table.put(rows, consumed_rows(self._windows.width, kept))
        self._table.keep(self._windows.width, self._windows.sums())
        # Windows that began before the first one of this run were shown by an earlier run into this folder.
        self._unshown |= {at: some for at, some in rows.items() if at[0] >= max(self._first, self._shown_to)}
        self._show(self._last)

    def _show(self, before: int) -> None:
        """Show the windows that begin before this time."""
        for at in sorted(at for at in self._unshown if at[0] < before):
            rows = self._unshown.pop(at)
            if self._on_window is not None:
                self._on_window(rows)
        self._shown_to = max(self._shown_to, before)

    def end(self) -> None:
        """Show the rows that were not shown yet."""
        self._show(1 << 62)

    def rows(self) -> list[FlowRow]:
        """The rows of the windows that this run has seen, or of its last hours."""
        if not self._last:
            return []
        return self._table.rows_from(datetime.fromtimestamp(max(self._first, self._last - REPORTED), UTC))


def _read_sums(rows: Iterable[Any]) -> list[tuple[WindowKey, Sums]]:
    return [
        (
            WindowKey(int(row.window.start.timestamp()), row.node, row.kind, row.stage, row.object),
            Sums(row.samples, row.value, row.connections, row.evidence, row.advice, *(row[name] for name in _COUNTS)),
        )
        for row in rows
    ]


class _Samples:
    """The job's own queue, bound to the samples as long as the job runs, and deleted at its end."""

    def __init__(self, options: ConnectionOptions, queue: str) -> None:
        self._options = options
        self.queue = queue
        self._connection: BrokerConnection | None = None
        self._beat_at = self._declared_at = 0.0

    def __enter__(self) -> _Samples:
        try:
            self._connected()
        except Away as away:
            raise broker_away(self.queue, str(away), self._options.connect_timeout, None) from away
        except Refused as refusal:
            raise refused(self.queue, str(refusal)) from refusal
        return self

    def _connected(self) -> BrokerConnection:
        """The connection, over which the queue was declared and bound. Raises Away, Refused and SparkSourceError."""
        if self._connection is None:
            connection = BrokerConnection(self._options, "spark/flow", HEARTBEAT)
            limits = {"x-max-length": MOST_SAMPLES, "x-max-length-bytes": MOST_BYTES, "x-expires": EXPIRES * 1000}
            declare = methods.QueueDeclare(queue=self.queue, durable=True, arguments=table_from(limits))
            bind = methods.QueueBind(queue=self.queue, exchange=EXCHANGE, routing_key=SAMPLE)
            try:
                connection.require_warren()
                connection.call(declare, methods.QueueDeclareOk)
                connection.call(bind, methods.QueueBindOk)
            except Refused as refusal:
                if refusal.code == 404:
                    connection.open_channel()
                    connection.call(methods.QueueDelete(queue=self.queue), methods.QueueDeleteOk)
                    connection.close()
                    raise no_samples(connection.where, self._options.place().vhost) from None
                raise
            self._connection, self._declared_at = connection, time.monotonic()
        return self._connection

    def stay(self) -> None:
        """Keep the connection open, and the queue from expiring. If the broker is away, the next call tries again."""
        now = time.monotonic()
        if now - self._beat_at < BEAT:
            return
        self._beat_at = now
        try:
            connection = self._connected()
            if now - self._declared_at > ALIVE:
                self._declared_at = now
                connection.declare_passively(self.queue)
            else:
                connection.beat()
        except (Away, Refused):
            self._drop()

    def unbind(self) -> None:
        """Have no more samples."""
        try:
            unbind = methods.QueueUnbind(queue=self.queue, exchange=EXCHANGE, routing_key=SAMPLE)
            self._connected().call(unbind, methods.QueueUnbindOk)
        except (Away, Refused):
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def __exit__(self, *error: object) -> None:
        with suppress(Away, Refused):
            self._connected().call(methods.QueueDelete(queue=self.queue), methods.QueueDeleteOk)
            self._connected().close()
