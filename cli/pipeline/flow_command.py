"""`warren pipeline flow`: which stage of the broker holds connections back, and when."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .command import connection, duration, pipeline, print_result, spark_options, spark_session
from .interrupt import INTERRUPTED, ended_in_order

if TYPE_CHECKING:
    from ...spark.jobs.flow_windows import FlowResult, FlowRow


@pipeline.command()
@connection
@click.option(
    "--window",
    default="10s",
    show_default=True,
    callback=duration("10s or 1m"),
    help="The time that a line stands for.",
)
@click.option("--for", "last", callback=duration("5m or 1h"), help="End after this time.  [default: at Ctrl-C]")
@click.option("--to", type=click.Path(file_okay=False), help="A folder for the table; a later run goes on there.")
@click.option("--report", type=click.Path(dir_okay=False), help="The HTML file that is written at the end.")
@spark_options
def flow(
    url: str,
    user: str | None,
    password_file: str | None,
    formatter: str,
    quiet: bool,
    window: float,
    last: float | None,
    to: str | None,
    report: str | None,
    master: str,
    conf: tuple[str, ...],
    memory: str | None,
) -> None:
    """Find the bottleneck: for each window of time, show what held connections back on the nodes of a broker.

    The broker needs the setting event_exchange_vhost, and the URL its virtual host. Nothing is taken from a queue.

    Exit codes: 0 done, 64 wrong use, 69 the broker is away, refuses or publishes no samples, 78 no Java or no PySpark,
    130 ended by Ctrl-C, after the report was written.
    """
    goal = "Ending" if report is None else "Ending with the report"
    with spark_session("flow", master, conf, memory) as spark, ended_in_order(goal) as stop:
        from ...spark.jobs.flow import flow as job

        shown = None if quiet else _Shown(to_stdout=formatter == "table")
        if shown is not None and sys.stderr.isatty():
            click.echo(f"Watching. The first line comes when a window of {window:g} s is over.", err=True)
        result = job(
            spark,
            window=window,
            last=last,
            to=to,
            report=report,
            on_window=shown,
            stop=stop,
            url=url,
            user=user,
            password_file=password_file,
        )
    print_result(formatter, result, _text(result, report))
    if result.is_interrupted:
        sys.exit(INTERRUPTED)


class _Shown:
    """Prints a line for each window of time. The line names the node once windows of several nodes have come."""

    def __init__(self, to_stdout: bool) -> None:
        self._is_error = not to_stdout
        self._nodes: set[str] = set()

    def __call__(self, rows: list[FlowRow]) -> None:
        from ...spark.jobs.flow_windows import bottleneck

        first, slow = rows[0], bottleneck(rows)
        self._nodes.add(first.node)
        node = f"{first.node}: " if len(self._nodes) > 1 else ""
        what = f"{slow.verdict} ({slow.evidence})" if slow is not None else "nothing holds connections back"
        rates = f"{first.published:,.0f} published/s, {first.delivered:,.0f} delivered/s"
        click.echo(f"{first.start:%H:%M:%S} UTC  {node}{what}; {rates}", err=self._is_error)


def _text(result: FlowResult, report: str | None) -> str:
    """The end of the output for people."""
    from ...spark.jobs.flow_windows import counted

    lines = [f"{result.windows:,} windows, nothing held connections back in {result.quiet:,} of them."]
    for each in result.bottlenecks:
        span = f"from {each.first:%H:%M:%S} to {each.last:%H:%M:%S}"
        lines.append(f"{each.place} held back {counted(each.connections)} in {each.windows:,} windows {span}.")
        lines.append(f"    {each.advice}")
    if report is not None:
        lines.append(f"The report is {report}")
    return "\n".join(lines)
