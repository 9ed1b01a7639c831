"""`warren pipeline query`, `analyse` and `capacity`: what became of a message, what went through queues, and what that
needs.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from ..formatters import dumped, listing
from .command import (
    duration,
    failures,
    login,
    output,
    period,
    pipeline,
    print_result,
    size,
    spark_options,
    spark_session,
)
from .progress import note, progress_line

#: Columns of `query` for people; `body` is behind them if it is asked for.
SHOWN = ("came", "place", "queue", "seq", "exchange", "routing_key", "message_id", "size")


@pipeline.command()
@click.option("--archive", type=click.Path(exists=True), help="Search this archive.")
@click.option("--data-dir", type=click.Path(exists=True), help="Search the data directory of a stopped broker.")
@click.option("--url", help="Search the queues of a running broker.")
@login
@click.option("--id", "message_id", help="Messages with this property message-id.")
@click.option("--key", help="Messages with this key in their header x-keys.")
@click.option("--correlation-id", help="Messages with this property correlation-id.")
@click.option("--routing-key", metavar="GLOB", help="Messages with such a routing key: * and ?")
@click.option("--where", metavar="SQL", help="Messages for which this condition over the columns holds.")
@period
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--pattern", help="Only queues whose name fits: * and ?")
@click.option("--limit", type=click.IntRange(min=1), default=32, show_default=True, help="Messages at most.")
@click.option("--body", "with_body", is_flag=True, help="Show the bodies, too.")
@output
@spark_options
def query(
    url: str | None,
    password_file: str | None,
    queues: tuple[str, ...],
    with_body: bool,
    formatter: str,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
    **given: Any,
) -> None:
    """Find messages in an archive, in the queues of a running broker and in a data directory, the newest first.

    Each message is shown once, wherever it is. Nothing is taken from a queue. For the last days of queues with a
    message index, `warren query_message` answers at once.

    Exit codes: 0 done, 64 wrong use, 69 the broker is away or refuses, 78 no Java or no PySpark.
    """
    sought = {"url": url, "queues": ",".join(queues) or None, "passwordFile": password_file, **given}
    with failures():
        from ...spark.jobs.query import check_query
        from ...spark.jobs.query import query as job

        # A mistake is shown before Spark takes seconds to start.
        check_query(**{name: value for name, value in sought.items() if name != "limit"})
    with spark_session("query", master, conf, memory) as spark, note("Searching …"):
        result = job(spark, with_body=with_body, **sought)
    rows = [_printable(row) for row in result.messages]
    if formatter == "json":
        click.echo(dumped({"messages": rows, "has_more": result.has_more, "left_out": result.left_out}))
        return
    columns = (*SHOWN, "body") if with_body else SHOWN
    for line in listing("table", columns, rows, True, sys.stdout.isatty()):
        click.echo(line)
    if not rows:
        click.echo("Nothing was found.", err=True)
    if result.has_more:
        click.echo("There are more. Narrow the search, or raise --limit.", err=True)


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with texts for bytes and times: bytes that are not UTF-8 in base64, as in the column `headers`.

    The encoded properties are left out: other columns have their values.
    """
    return {name: _text(value) for name, value in row.items() if name != "properties"}


def _text(value: Any) -> Any:
    from base64 import b64encode
    from datetime import datetime

    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "base64:" + b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_text(each) for each in value]
    return {name: _text(each) for name, each in value.items()} if isinstance(value, dict) else value


@pipeline.command()
@click.option("--archive", type=click.Path(exists=True), help="The folder of an archive.")
@click.option("--data-dir", type=click.Path(exists=True), help="The data directory of a stopped broker, or a copy.")
@click.option("--url", help="A running broker.")
@login
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--since", metavar="DATE", help="Only what came on that day or later, in UTC.")
@click.option("--bucket", default="1m", show_default=True, help="The time that a row stands for: 10s, 1m, 1h, 1d.")
@click.option("--report", required=True, type=click.Path(), help="The HTML file that is written.")
@click.option("--tables", type=click.Path(), help="A folder for the tables as files of Parquet.")
@spark_options
def analyse(
    password_file: str | None,
    queues: tuple[str, ...],
    report: str,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
    **given: Any,
) -> None:
    """Report what went through queues: rates, sizes, waiting times, keys, dead letters, redelivery, holes."""
    with failures():
        from ...spark.jobs.analyse import analyse as job
        from ...spark.jobs.analyse import check_analysis

        check_analysis(report=report, **given)
    options = {"queues": ",".join(queues) or None, "report": report, "passwordFile": password_file, **given}
    with spark_session("analyse", master, conf, memory) as spark, progress_line(_computed, quiet=False) as shown:
        result = job(spark, on_progress=shown, **options)
    click.echo(f"{result.messages:,} messages; the report is {report}")


def _computed(seconds: float, done: int, total: int, name: str) -> str:
    """How far an analysis is."""
    return f"{done} of {total} tables; computing {name}"


@pipeline.command()
@click.option("--archive", required=True, type=click.Path(exists=True), help="The folder of an archive.")
@click.option(
    "--flow",
    type=click.Path(exists=True, file_okay=False),
    help="The folder of `warren pipeline flow --to`: for prefetch, and for queues that were the bottleneck.",
)
@click.option(
    "--node-rate",
    type=click.IntRange(min=1),
    default=300_000,
    show_default=True,
    help="Messages that a node passes on in a second.",
)
@click.option(
    "--growth",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How many times today's traffic there will be.",
)
@click.option(
    "--keep-for",
    default="3d",
    show_default=True,
    callback=duration("3d or 12h"),
    help="How long messages, and files of the archive, are kept.",
)
@click.option("--machine", callback=size("16g"), help="Memory of the broker's machine.  [default: this machine's]")
@output
@spark_options
def capacity(
    archive: str,
    flow: str | None,
    node_rate: int,
    growth: float,
    keep_for: float,
    machine: int | None,
    formatter: str,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
) -> None:
    """Advise on shards, limits, prefetch, memory and disk for the queues of an archive, with each formula."""
    with failures():
        from ...spark.archive.notes import require_archive
        from ...spark.jobs.capacity import capacity as job

        require_archive(archive)
    with spark_session("capacity", master, conf, memory) as spark, note("Reading the archive …"):
        result = job(spark, archive, node_rate=node_rate, growth=growth, keep_for=keep_for, memory=machine, flow=flow)
    if formatter == "json":
        print_result(formatter, result, "")
        return
    rows = [vars(each) for each in result.advice]
    for line in listing("table", ("queue", "setting", "value", "because"), rows, True, sys.stdout.isatty()):
        click.echo(line)
    click.echo(f"Computed from {result.messages:,} messages of {result.days:.1f} days.", err=True)
