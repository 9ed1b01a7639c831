"""`warren pipeline`: the jobs of warren.spark as commands.

The packages of the extra `spark` are imported when a command runs.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...settings.limits import shown_size
from ..failure import EX_CONFIG, EX_DATAERR, EX_SOFTWARE, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE, CommandFailure

if TYPE_CHECKING:
    from ...spark.jobs.archive import ArchiveProgress

#: Exit codes by the codes of errors; another error is a fault, 70.
EXITS = {
    **{"E1": EX_CONFIG, "E2": EX_CONFIG, "E4": EX_USAGE, "E3": EX_UNAVAILABLE, "E5": EX_UNAVAILABLE},
    **{"E7": EX_TEMPFAIL, "E8": EX_DATAERR, "E12": EX_UNAVAILABLE, "E13": EX_UNAVAILABLE, "E14": EX_TEMPFAIL},
}
#: Seconds between two lines of progress, on a terminal and elsewhere.
ON_TERMINAL, ELSEWHERE = 0.25, 10.0

Command = Callable[..., None]


@click.group()
def pipeline() -> None:
    """Archive, replay and analyse queues. It needs the packages of `pip install 'warren-mq[spark]'`."""


def _connection(command: Command) -> Command:
    """The options of all jobs that talk to a broker."""
    for make in (
        click.option("--quiet", is_flag=True, help="Show no progress."),
        click.option(
            "--formatter",
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
            help="Print the result for people, or as JSON.",
        ),
        click.option("--password-file", type=click.Path(), help="A file whose first line is the password."),
        click.option("--user", help="The user, instead of the URL's."),
        click.option(
            "--url", default="amqp://127.0.0.1/%2F", show_default=True, help="The broker; several with commas."
        ),
    ):
        command = make(command)
    return command


@pipeline.command()
@_connection
@click.option("--queue", "queues", multiple=True, help="The queue; may be given several times.")
@click.option("--pattern", help="All queues whose name fits: * and ?")
@click.option("--to", "target", required=True, type=click.Path(), help="The folder of the archive.")
@click.option("--follow", is_flag=True, help="Go on with what comes, every 10 s, until Ctrl-C.")
@click.option("--keep", is_flag=True, help="Acknowledge nothing: the messages stay in their queues.")
@click.option("--compress", default="zstd", show_default=True, help="How the files are compressed.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--conf", multiple=True, metavar="K=V", help="A setting of Spark; may be given several times.")
@click.option("--memory", help="Memory of Spark's Java, such as 2g.")
def archive(
    url: str,
    user: str | None,
    password_file: str | None,
    formatter: str,
    quiet: bool,
    queues: tuple[str, ...],
    pattern: str | None,
    target: str,
    follow: bool,
    keep: bool,
    compress: str,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
) -> None:
    """Write the messages of queues into files of Parquet, each message once.

    Messages are acknowledged when their file is complete. The same command goes on where a killed one stopped.

    Exit codes: 0 done, 64 wrong use, 65 messages are gone that were not read, 69 the broker is away or refuses, 75
    another query deletes from the queue or the disk is full, 78 no Java or no PySpark, 130 interrupted.
    """
    settings = dict(pair.partition("=")[::2] for pair in conf) | ({"spark.driver.memory": memory} if memory else {})
    with _failures():
        from ...spark.sessions import require_pyspark, session

        require_pyspark()
        from ...spark.jobs.archive import archive as job

        spark = session("warren pipeline archive", master, **{"spark.log.level": "OFF", **settings})
        try:
            result = job(
                spark,
                target,
                follow=follow,
                keep=keep,
                compress=compress,
                on_progress=None if quiet else _Shown(),
                url=url,
                user=user,
                password_file=password_file,
                queues=",".join(queues) or None,
                pattern=pattern,
            )
        finally:
            spark.stop()
    gone = f"; {result.gone:,} were gone" if result.gone else ""
    text = f"{result.messages:,} messages in {result.files:,} files, {shown_size(result.bytes)}{gone}"
    _print(formatter, result, text)


@pipeline.command()
@_connection
@click.option("--from", "target", required=True, type=click.Path(exists=True), help="The folder of the archive.")
@click.option("--exchange", help="Publish there.")
@click.option("--routing-key", help="With this key instead of each message's own.")
@click.option("--to-queue", help="Publish into this queue instead.")
@click.option("--queue", help="Only the messages of this source queue.")
@click.option("--key", "routing_keys", metavar="GLOB", help="Only messages with such a routing key.")
@click.option("--since", type=click.DateTime(), help="Only messages that arrived then or later, in UTC.")
@click.option("--until", type=click.DateTime(), help="Only messages that arrived then or earlier, in UTC.")
@click.option("--rate", type=click.IntRange(min=1), help="Messages a second, evenly.")
@click.option("--name", default="replay", show_default=True, help="A run of this name goes on where it stopped.")
@click.option("--deduplicate", is_flag=True, help="Give each message an id for queues with x-warren-deduplicate.")
@click.option("--dry-run", is_flag=True, help="Count only.")
def replay(
    url: str,
    user: str | None,
    password_file: str | None,
    formatter: str,
    quiet: bool,
    target: str,
    since: Any,
    until: Any,
    **given: Any,
) -> None:
    """Publish archived messages again, in the order of each source queue. It needs no Java.

    Each message has the header x-warren-replay with the run's name. If a run is killed and goes on, the last 10,000
    messages of a queue may be published twice.
    """
    from datetime import UTC

    with _failures():
        from ...spark.sessions import require_pyspark

        require_pyspark()
        from ...spark.jobs.replay import replay as job

        result = job(
            target,
            since=since and since.replace(tzinfo=UTC),
            until=until and until.replace(tzinfo=UTC),
            on_progress=None if quiet else _Sent(),
            url=url,
            user=user,
            passwordFile=password_file,
            **given,
        )
    span = f", arrived {result.first:%Y-%m-%d %H:%M:%S} to {result.last:%Y-%m-%d %H:%M:%S}" if result.first else ""
    twice = f". Up to {result.may_repeat:,} of them may have been published before" if result.may_repeat else ""
    done = "would be published" if given["dry_run"] else "published"
    text = f"{result.messages:,} messages of {result.queues:,} queues {done}, {shown_size(result.bytes)}{span}{twice}"
    _print(formatter, result, text)


@pipeline.command()
@click.option("--archive", type=click.Path(exists=True), help="The folder of an archive.")
@click.option("--data-dir", type=click.Path(exists=True), help="The data directory of a stopped broker, or a copy.")
@click.option("--url", help="A running broker.")
@click.option("--user", help="The user, instead of the URL's.")
@click.option("--password-file", type=click.Path(), help="A file whose first line is the password.")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times.")
@click.option("--since", metavar="DATE", help="Only what came on that day or later.")
@click.option("--bucket", default="1m", show_default=True, help="The time that a row stands for: 10s, 1m, 1h, 1d.")
@click.option("--report", required=True, type=click.Path(), help="The HTML file that is written.")
@click.option("--tables", type=click.Path(), help="A folder for the tables as files of Parquet.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
def analyse(
    archive: str | None,
    data_dir: str | None,
    url: str | None,
    user: str | None,
    password_file: str | None,
    queues: tuple[str, ...],
    since: str | None,
    bucket: str,
    report: str,
    tables: str | None,
    master: str,
) -> None:
    """Report what went through queues: rates, sizes, waiting times, keys, dead letters, redelivery, holes."""
    with _failures():
        from ...spark.sessions import require_pyspark, session

        require_pyspark()
        from ...spark.jobs.analyse import analyse as job

        spark = session("warren pipeline analyse", master, **{"spark.log.level": "OFF"})
        try:
            result = job(
                spark,
                archive=archive,
                data_dir=data_dir,
                url=url,
                queues=",".join(queues) or None,
                since=since,
                bucket=bucket,
                report=report,
                tables=tables,
                user=user,
                passwordFile=password_file,
            )
        finally:
            spark.stop()
    click.echo(f"{result.messages:,} messages; the report is {report}")


def _print(formatter: str, result: Any, text: str) -> None:
    click.echo(json.dumps(dataclasses.asdict(result), default=str) if formatter == "json" else text)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn errors of jobs into exit codes. A job's own error may be within one of Spark's."""
    from ...spark.errors import SparkSourceError

    try:
        yield
    except SparkSourceError as error:
        raise CommandFailure(str(error), EXITS.get(error.code, EX_SOFTWARE)) from error
    except (KeyboardInterrupt, click.exceptions.Exit):
        raise
    except Exception as error:
        last = [line for line in str(error).splitlines() if "SparkSourceError: " in line]
        if not last:
            raise
        text = last[-1].partition("SparkSourceError: ")[2]
        raise CommandFailure(text, _exit_of(text)) from error


def _exit_of(text: str) -> int:
    """The exit code for the text of an error that has lost its code on the way through Spark."""
    for part, code in (
        ("left unread", "E8"),
        ("it was deleted", "E8"),
        ("already has a query", "E7"),
        ("no space left", "E14"),
        ("is not warren", "E3"),
        ("of format 'warren'", "E4"),
        ("start the query again", "E5"),
        ("the broker refused", "E5"),
        ("there is no such queue", "E5"),
    ):
        if part in text:
            return EXITS[code]
    return EX_SOFTWARE


class _Shown:
    """Shows how far an archive is: a line that is written over on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, progress: ArchiveProgress) -> None:
        now = time.monotonic()
        if now - self._last < (ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE):
            return
        self._last = now
        rate = progress.messages / (now - self._began)
        left = sum(goal - place for place, goal in progress.queues.values())
        eta = f", {left / rate:,.0f} s left" if rate and left else ""
        line = f"{progress.messages:,} messages, {rate:,.0f}/s, {shown_size(progress.bytes)}{eta}"
        click.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, err=True, nl=not sys.stderr.isatty())


class _Sent:
    """Shows how far a replay is."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, sent: int) -> None:
        now = time.monotonic()
        if now - self._last >= (ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE):
            self._last = now
            line = f"{sent:,} messages, {sent / (now - self._began):,.0f}/s"
            click.echo(f"\r\033[K{line}" if sys.stderr.isatty() else line, err=True, nl=not sys.stderr.isatty())
