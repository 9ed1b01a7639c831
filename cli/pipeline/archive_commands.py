"""`warren pipeline archive`, `compact` and `replay`: from queues to files of Parquet, and back."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ...settings.limits import shown_size
from ..failure import EX_DATAERR, CommandFailure
from .command import (
    ELSEWHERE,
    ON_TERMINAL,
    connection,
    duration,
    failures,
    output,
    period,
    pipeline,
    print_result,
    progress,
    size,
    spark_options,
    spark_session,
    times,
)

if TYPE_CHECKING:
    from ...spark.jobs.archive import ArchiveProgress


@pipeline.command()
@connection
@click.option("--queue", "queues", multiple=True, help="The queue; may be given several times.")
@click.option("--pattern", help="All queues whose name fits: * and ?")
@click.option("--exchange", help="What is published to this exchange from now on, beside its other queues.")
@click.option("--binding-key", "binding_keys", multiple=True, help="Only with this key; may be given several times.")
@click.option("--subscription", help="With --exchange: the messages are collected in the queue spark.SUBSCRIPTION.")
@click.option("--to", "target", required=True, type=click.Path(), help="The folder of the archive.")
@click.option("--follow", is_flag=True, help="Go on with what comes, every 10 s, until Ctrl-C.")
@click.option("--keep", is_flag=True, help="Acknowledge nothing: the messages stay in their queues.")
@click.option("--compress", default="zstd", show_default=True, help="How the files are compressed.")
@spark_options
def archive(
    url: str,
    user: str | None,
    password_file: str | None,
    formatter: str,
    quiet: bool,
    queues: tuple[str, ...],
    pattern: str | None,
    exchange: str | None,
    binding_keys: tuple[str, ...],
    subscription: str | None,
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
    with spark_session("archive", master, conf, memory) as spark:
        from ...spark.jobs.archive import archive as job

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
            exchange=exchange,
            binding_keys=",".join(binding_keys) or None,
            subscription=subscription,
        )
    gone = f"; {result.gone:,} were gone" if result.gone else ""
    text = f"{result.messages:,} messages in {result.files:,} files, {shown_size(result.bytes)}{gone}"
    print_result(formatter, result, text)


@pipeline.command()
@connection
@click.option("--from", "target", required=True, type=click.Path(exists=True), help="The folder of the archive.")
@click.option("--exchange", help="Publish there.")
@click.option("--routing-key", help="With this key instead of each message's own.")
@click.option("--to-queue", help="Publish into this queue instead.")
@click.option("--queue", help="Only the messages of this source queue.")
@click.option("--key", "routing_keys", metavar="GLOB", help="Only messages with such a routing key.")
@period
@click.option("--rate", type=click.IntRange(min=1), help="Messages a second, evenly.")
@click.option(
    "--speed", callback=times("2x or 0.5x"), help="In the rhythm in which they arrived, so many times as fast."
)
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

    with failures():
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
    print_result(formatter, result, text)


@pipeline.command()
@click.option("--at", "target", required=True, type=click.Path(exists=True), help="The folder of the archive.")
@click.option("--queue", help="Only the files of this queue.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    callback=duration("1d or 12h"),
    help="Only files of days that ended so long ago, in UTC.",
)
@click.option(
    "--target-size",
    default="256m",
    show_default=True,
    callback=size("256m or 1g"),
    help="The most bytes of files that become one.",
)
@progress
@output
def compact(target: str, formatter: str, quiet: bool, older_than: Any, **given: Any) -> None:
    """Merge the small files of an archive. It needs no Java, and messages may be archived meanwhile.

    A run that was killed is ended by the next one.

    Exit codes: 0 done, 64 no archive, 65 some files are damaged and were left as they are, 75 another process compacts
    this archive or the disk is full.
    """
    from datetime import timedelta

    with failures():
        from ...spark.sessions import require_pyspark

        require_pyspark()
        from ...spark.jobs.compact import compact as job

        shown = None if quiet else _Merged()
        result = job(target, older_than=timedelta(seconds=older_than), on_progress=shown, **given)
    text = f"{result.files:,} files merged into {result.into:,}, {shown_size(result.bytes)}"
    print_result(formatter, result, text)
    if result.problems:
        raise CommandFailure("files that were not merged: " + "; ".join(result.problems), EX_DATAERR)


def show_progress(line: str) -> None:
    """Write a line of progress: over the last one on a terminal."""
    is_terminal = sys.stderr.isatty()
    click.echo(f"\r\033[K{line}" if is_terminal else line, err=True, nl=not is_terminal)


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
        show_progress(f"{progress.messages:,} messages, {rate:,.0f}/s, {shown_size(progress.bytes)}{eta}")


class _Sent:
    """Shows how far a replay is."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, sent: int) -> None:
        now = time.monotonic()
        if now - self._last >= (ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE):
            self._last = now
            show_progress(f"{sent:,} messages, {sent / (now - self._began):,.0f}/s")


class _Merged:
    """Shows how far a compaction is."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= (ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE):
            self._last = now
            show_progress(f"{done:,} of {total:,} files merged")
