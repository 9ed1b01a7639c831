"""The job `analyse`: what went through queues, as tables and as one HTML file that opens without a network.

A percentile, say the 90th, is the smallest value that at least 90% of the messages do not exceed (`percentile_disc`),
so that anybody can check it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive.chosen_queues import queues_in_archive, queues_in_directory
from ..archive.notes import noted_files, require_archive
from ..errors import wrong_option, wrong_options
from ..offline.offline_plan import require_directory
from .archive import read_archive, verify_archive
from .rows_in_utc import micros_of, rows_in_utc

#: Columns of messages that the tables are made of.
COLUMNS = (
    *("queue", "seq", "exchange", "routing_key", "size", "timestamp", "arrived", "redelivered"),
    *("message_id", "x_death", "properties"),
)
#: Bodies below this size are in a queue's index, others in the message store.
EMBEDDED_BELOW = 4096
#: Rows of the table of keys.
TOP_KEYS = 100

_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}

#: The tables, by name: SQL over the view `messages`, in which `moment` is when a message came, as far as that is known.
TABLES = {
    "rates": """
        with seconds as (
            select queue, window(moment, '{bucket}').start as bucket, date_trunc('second', moment) as second,
                   count(*) as messages, sum(size) as bytes
            from messages where moment is not null group by all
        )
        select bucket, queue, sum(messages) as messages, sum(bytes) as bytes, max(messages) as peak_second
        from seconds group by bucket, queue order by bucket, queue
    """,
    "sizes": """
        select queue, count(*) as messages, percentile_disc(0.5) within group (order by size) as p50,
               percentile_disc(0.9) within group (order by size) as p90,
               percentile_disc(0.99) within group (order by size) as p99, max(size) as most,
               avg(if(size < {embedded}, 1.0D, 0.0D)) as share_embedded,
               percentile_disc(0.5) within group (order by length(properties)) as properties_p50
        from messages group by queue order by queue
    """,
    "latency": """
        with waits as (
            select queue, window(moment, '{bucket}').start as bucket,
                   (unix_micros(arrived) - unix_micros(timestamp)) / 1e6D as to_broker,
                   (unix_micros(archived_at) - unix_micros(arrived)) / 1e6D as in_queue
            from messages where arrived is not null
        )
        select bucket, queue, percentile_disc(0.5) within group (order by to_broker) as to_broker_p50,
               percentile_disc(0.99) within group (order by to_broker) as to_broker_p99,
               max(to_broker) as to_broker_most,
               percentile_disc(0.5) within group (order by in_queue) as in_queue_p50,
               percentile_disc(0.99) within group (order by in_queue) as in_queue_p99, max(in_queue) as in_queue_most
        from waits group by bucket, queue order by bucket, queue
    """,
    "keys": """
        select exchange, routing_key, count(*) as messages, count(*) / sum(count(*)) over () as share
        from messages group by exchange, routing_key order by messages desc, exchange, routing_key limit {top}
    """,
    "dead_letters": """
        with deaths as (
            select queue, moment, death.reason as reason, death.queue as source, death.count as deaths
            from messages lateral view explode(x_death) as death
        )
        select queue, reason, source, count(*) as messages,
               percentile_disc(0.5) within group (order by deaths) as deaths_p50,
               min(moment) as first, max(moment) as last
        from deaths group by queue, reason, source order by queue, reason, source
    """,
    "redelivery": """
        with ids as (
                 select queue, message_id, count(*) as times from messages where message_id is not null group by all
             ),
             again as (select queue, count(*) as repeated_ids from ids where times > 1 group by queue)
        select m.queue, avg(if(m.redelivered, 1.0D, 0.0D)) as share_redelivered,
               coalesce(max(again.repeated_ids), 0) as repeated_ids
        from messages m left join again on again.queue = m.queue group by m.queue order by m.queue
    """,
}


@dataclass(frozen=True)
class Analysis:
    """The tables as lists of rows by name, how many messages they are made of, and the width of a bucket."""

    tables: dict[str, list[dict[str, Any]]]
    messages: int
    bucket: str


def analyse(
    spark: Any,
    *,
    archive: str | None = None,
    data_dir: str | None = None,
    url: str | None = None,
    queues: str | None = None,
    since: str | None = None,
    bucket: str = "1m",
    report: str | None = None,
    tables: str | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    **options: Any,
) -> Analysis:
    """Analyse an archive, the data directory of a stopped broker, or queues of a running one.

    since          a date, or a time in ISO 8601, in UTC: only what came then or later
    queues         only these queues, several with commas, or the shards of these
    bucket         how much time a row of `rates` and `latency` stands for: `10s`, `1m`, `1h`, `1d`
    report         write the HTML file there
    tables         write a file of Parquet for each table into this folder
    on_progress    gets how many tables are computed, of how many, and the name of the next one
    options        how to reach the broker
    """
    check_analysis(archive=archive, data_dir=data_dir, url=url, bucket=bucket, since=since, report=report)
    width = _width(bucket)
    names = None if queues is None else [name.strip() for name in queues.split(",")]
    _view(spark, archive, data_dir, url, names, _moment(since), options)
    found = {}
    for place, (name, sql) in enumerate(TABLES.items()):
        if on_progress is not None:
            on_progress(place, len(TABLES), name)
        text = sql.format(bucket=width, embedded=EMBEDDED_BELOW, top=TOP_KEYS)
        table = spark.sql(text)
        found[name] = rows_in_utc(table.collect())
        if tables is not None:
            table.coalesce(1).write.mode("overwrite").parquet(f"{tables}/{name}")
    found["holes"] = []
    if archive is not None:
        here = queues_in_archive(noted_files(require_archive(archive)), names)
        found["holes"] = [
            {"queue": each.queue, "first": each.first, "next": each.next, "rows": each.rows, "gone": each.gone}
            | {"gaps": each.gaps, "problems": "; ".join(each.problems)}
            for each in verify_archive(archive)
            if each.queue in here
        ]
    result = Analysis(found, sum(row["messages"] for row in found["sizes"]), bucket)
    if report is not None:
        from .report import report_page

        page = report_page(result.tables, result.messages, bucket)
        os.makedirs(os.path.dirname(os.path.abspath(report)), exist_ok=True)
        with open(report, "w", encoding="utf-8") as file:
            file.write(page)
    return result


def check_analysis(
    *,
    archive: str | None = None,
    data_dir: str | None = None,
    url: str | None = None,
    bucket: str = "1m",
    since: str | None = None,
    report: str | None = None,
    **_: Any,
) -> None:
    """Check what `analyse` is asked for as far as that needs no Spark. Raises SparkSourceError E4, E11 and OSError."""
    _width(bucket)
    _moment(since)
    if report is not None:
        # Not only after the tables are computed, which may take hours.
        os.makedirs(os.path.dirname(os.path.abspath(report)), exist_ok=True)
        is_new = not os.path.exists(report)
        with open(report, "a", encoding="utf-8"):
            pass
        if is_new:
            os.unlink(report)
    if [archive, data_dir, url].count(None) != 2:
        raise wrong_options("an analysis needs one of an archive, a data directory, and a broker's URL")
    if archive is not None:
        require_archive(archive)
    if data_dir is not None:
        require_directory(data_dir)


def _width(bucket: str) -> str:
    match = re.fullmatch(r"([1-9]\d*)([smhd])", bucket)
    if match is None:
        raise wrong_option("bucket", bucket, "a time such as 10s, 1m, 1h or 1d")
    return f"{match[1]} {_UNITS[match[2]]}"


def _moment(since: str | None) -> datetime | None:
    """The time that `since` names. Raises SparkSourceError E4."""
    if since is None:
        return None
    try:
        moment = datetime.fromisoformat(since.strip())
    except ValueError:
        raise wrong_option("since", since, "a date such as 2026-11-23, or 2026-11-23T08:00:00 in UTC") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _view(
    spark: Any,
    archive: str | None,
    data_dir: str | None,
    url: str | None,
    queues: list[str] | None,
    since: datetime | None,
    options: dict[str, Any],
) -> None:
    """Make the view `messages`. It lacks the bodies, because the tables use only their sizes."""
    from pyspark.sql import functions

    # The broker chooses its queues itself.
    chosen: set[str] | None = None
    if archive is not None:
        found = read_archive(spark, archive, [*COLUMNS, "archived_at"])
        chosen = queues_in_archive(noted_files(require_archive(archive)), queues)
    else:
        reader = spark.read.format("warren").option("columns", ",".join(COLUMNS))
        if data_dir is not None:
            reader = reader.option("path", data_dir)
            chosen = queues_in_directory(data_dir, queues)
        else:
            given = {name: str(value) for name, value in options.items() if value is not None}
            # A queue that cannot be read by number ends an analysis only if the user has named it.
            sought = {"queues": ",".join(queues)} if queues else {"pattern": "*", "skipUnreadable": "true"}
            reader = reader.options(url=url, **sought, **given)
        found = reader.load().withColumn("archived_at", functions.lit(None).cast("timestamp"))
    found = found.withColumn("moment", functions.coalesce("arrived", "timestamp", "archived_at"))
    if queues is not None and chosen is not None:
        found = found.where(functions.col("queue").isin(chosen))
    if since is not None:
        # As a number, because Spark takes a text for a time in the zone of the session.
        found = found.where(functions.unix_micros("moment") >= micros_of(since))
    found.createOrReplaceTempView("messages")
