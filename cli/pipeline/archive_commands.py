"""`warren pipeline archive`, `compact` and `replay`: from queues to files of Parquet, and back."""

from __future__ import annotations

import sys
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...settings.limits import shown_size
from ..failure import EX_DATAERR, CommandFailure
from .command import (
    connection,
    counted,
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
    yield_processors,
)
from .interrupt import INTERRUPTED, ended_in_order
from .progress import progress_line

if TYPE_CHECKING:
    from ...spark.jobs.archive import ArchiveProgress
    from ...spark.jobs.replay import ReplayResult


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
@click.option("--through-spark", metavar="FORMAT", help="Have Spark write in this format of its own, such as delta.")
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
    through_spark: str | None,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
) -> None:
    """Write the messages of queues into files of Parquet, each message once.

    Messages are acknowledged when their file is complete. The same command goes on where a killed one stopped.

    Exit codes: 0 done, 64 wrong use, 65 messages are gone that were not read, 69 the broker is away or refuses, 75
    another query deletes from the queue or the disk is full, 78 no Java or no PySpark, 130 interrupted.
    """
    options: dict[str, Any] = {
        **{"url": url, "user": user, "password_file": password_file, "pattern": pattern, "exchange": exchange},
        **{"queues": ",".join(queues) or None, "binding_keys": ",".join(binding_keys) or None},
        "subscription": subscription,
    }
    with failures():
        from ...spark.jobs.archive import archive as job
        from ...spark.jobs.archive import check_archive

        # A mistake is shown before Spark takes seconds to start.
        reason = check_archive(target, keep=keep, through_spark=through_spark, **options)
    if reason is not None and not quiet:
        click.echo(f"{reason}; the broker has a minute to come back.", err=True)
    with (
        spark_session("archive", master, conf, memory) as spark,
        progress_line(_written, quiet) as shown,
        ended_in_order("Ending when the files in hand are complete") as stop,
    ):
        how: dict[str, Any] = {"follow": follow, "keep": keep, "compress": compress, "through_spark": through_spark}
        result = job(spark, target, on_progress=shown, stop=stop, **how, **options)
    gone = f"; {result.gone:,} were gone" if result.gone else ""
    text = f"{counted(result.messages, 'message')} in {counted(result.files, 'file')}, {shown_size(result.bytes)}{gone}"
    if through_spark is not None:
        text = f"{counted(result.messages, 'message')} in the format {through_spark}"
    if result.is_interrupted:
        text = f"Interrupted after {text}. The same command goes on from there."
    print_result(formatter, result, text)
    if result.is_interrupted:
        sys.exit(INTERRUPTED)


@pipeline.command()
@connection
@click.option("--from", "target", required=True, type=click.Path(exists=True), help="The folder of the archive.")
@click.option("--exchange", help="Publish there.")
@click.option("--routing-key", help="With this key instead of each message's own.")
@click.option("--to-queue", help="Publish into this queue instead.")
@click.option("--queue", "queues", multiple=True, help="Only this source queue; may be given several times.")
@click.option("--id", "message_id", help="Only the messages with this message id.")
@click.option("--correlation-id", help="Only the messages with this correlation id.")
@click.option("--key", "routing_keys", metavar="GLOB", help="Only messages with such a routing key.")
@period
@click.option("--rate", type=click.IntRange(min=1), help="Messages a second of all queues together, evenly.")
@click.option(
    "--speed", callback=times("2x or 0.5x"), help="In the rhythm in which they arrived, so many times as fast."
)
@click.option("--name", default="replay", show_default=True, help="A run of this name goes on where it stopped.")
@click.option("--deduplicate", is_flag=True, help="Give each message an id for queues with x-warren-deduplicate.")
@click.option("--dry-run", is_flag=True, help="Count only, and show how long it would take.")
def replay(
    url: str,
    user: str | None,
    password_file: str | None,
    formatter: str,
    quiet: bool,
    target: str,
    queues: tuple[str, ...],
    since: Any,
    until: Any,
    **given: Any,
) -> None:
    """Publish archived messages again, in the order of each source queue. It needs no Java.

    Each message has the header x-warren-replay with the run's name. If a run is killed and goes on, the last 10,000
    messages of a queue may be published twice.
    """
    with failures():
        from ...spark.jobs.replay import replay as job

        yield_processors()
        with (
            progress_line(_sent, quiet) as shown,
            ended_in_order("Ending when the messages that are under way are confirmed") as stop,
        ):
            result = job(
                target,
                queue=queues or None,
                since=since and since.replace(tzinfo=UTC),
                until=until and until.replace(tzinfo=UTC),
                on_progress=shown,
                stop=stop,
                url=url,
                user=user,
                passwordFile=password_file,
                **given,
            )
    print_result(formatter, result, _replayed(result, given["name"], given["dry_run"]))
    if result.is_interrupted:
        sys.exit(INTERRUPTED)


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
    with failures():
        from ...spark.jobs.compact import compact as job

        yield_processors()
        with progress_line(_merged, quiet) as shown:
            result = job(target, older_than=timedelta(seconds=older_than), on_progress=shown, **given)
    text = f"{counted(result.files, 'file')} merged into {result.into:,}, {shown_size(result.bytes)}"
    if not result.files and not result.problems:
        text = "Nothing to merge: no two files of a queue and of a day that is over follow each other and fit together."
    print_result(formatter, result, text)
    if result.problems:
        raise CommandFailure("files that were not merged: " + "; ".join(result.problems), EX_DATAERR)


def _written(seconds: float, progress: ArchiveProgress) -> str:
    """How far an archive is."""
    backlog = sum(goal - place for place, goal in progress.queues.values())
    left = max(progress.in_hand, backlog)
    rate = progress.messages / seconds
    parts = [f"{progress.messages:,} messages in files, {rate:,.0f}/s, {shown_size(progress.bytes)}"]
    if progress.in_hand:
        tasks = f", {progress.ended:,} of {progress.parts:,} parts done" if progress.parts else ""
        parts.append(f"writing {progress.in_hand:,} more{tasks}")
    if rate and left:
        parts.append(f"{left / rate:,.0f} s left")
    return "; ".join(parts)


def _sent(seconds: float, sent: int) -> str:
    """How far a replay is."""
    return f"{sent:,} messages, {sent / seconds:,.0f}/s"


def _merged(seconds: float, done: int, total: int) -> str:
    """How far a compaction is."""
    return f"{done:,} of {total:,} files merged"


def _replayed(result: ReplayResult, name: str, is_dry: bool) -> str:
    """What a replay has done, for people."""
    if not result.messages and not is_dry and not result.is_interrupted:
        return f"Nothing to publish: no message fits, or the run '{name}' has published all. --name begins another run."
    done = "would be published" if is_dry else "published"
    text = (
        f"{counted(result.messages, 'message')} of {counted(result.queues, 'queue')} {done}, {shown_size(result.bytes)}"
    )
    if result.first is not None:
        text += f", arrived {result.first:%Y-%m-%d %H:%M:%S} to {result.last:%Y-%m-%d %H:%M:%S}"
    if result.seconds is not None:
        text += f"; that takes about {timedelta(seconds=round(result.seconds))}"
    if result.may_repeat:
        text += f". Up to {result.may_repeat:,} of them may have been published before"
    return f"Interrupted after {text}. The same command goes on from there." if result.is_interrupted else text
