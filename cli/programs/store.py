"""`warren store`: commands on the data directory of a stopped broker."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from ...settings.limits import shown_size
from ...store.verify.verify_report import Finding, Severity, VerifyReport, VhostReport
from ..failure import EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL, CommandFailure

#: Rows of a printed table; JSON has all rows.
SHOWN_MOST = 20
#: Bytes to read from which on a progress bar is shown; less takes only a moment.
PROGRESS_FROM = 64 << 20
COLOURS = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}


@click.group()
def store() -> None:
    """Work on the data directory of a stopped broker."""


@store.command()
@click.argument("data_dir", type=click.Path())
@click.option(
    "--formatter",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Print tables for people, or JSON for scripts.",
)
def verify(data_dir: str, formatter: str) -> None:
    """Check DATA_DIR, the data directory of a stopped broker. The command reads all files and changes none.

    It prints the contents, the damage that it finds, and what the broker will do about it at its next start. Traces of
    a crash, such as a torn last record, are notes: no confirmed message is lost by them.

    Exit codes: 0 if there are at most notes, 65 if there are warnings or errors, 66 if the directory cannot be checked
    (it does not exist, is not a data directory of warren, or has a newer format), 75 if a broker is using it.
    """
    # These imports are here because `--help` does not need them.
    from ...actors.metadata.log.row_encoding import stored_rows
    from ...store.verify import verify as engine

    try:
        with engine.opened(data_dir) as path, _progress(engine.total_bytes(path)) as advance:
            report = engine.verify(path, lambda tables: stored_rows(tables).stale, advance)
    except engine.InUse as error:
        raise CommandFailure(str(error), EX_TEMPFAIL) from error
    except engine.CannotVerify as error:
        raise CommandFailure(str(error), EX_NOINPUT) from error
    if formatter == "json":
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        for line in _lines(report):
            click.echo(_printable(line))
    if not report.is_fine:
        sys.exit(EX_DATAERR)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal and there is much to read."""
    if total < PROGRESS_FROM or not sys.stderr.isatty():
        yield lambda size: None
        return
    with click.progressbar(length=total, label="verifying", file=sys.stderr, update_min_steps=total // 1000) as bar:
        yield bar.update


def _lines(report: VerifyReport) -> Iterator[str]:
    yield f"{report.path}  (format {report.format})"
    for vhost in report.vhosts:
        yield ""
        yield from _vhost_lines(vhost)
    findings = list(report.findings)
    for finding in findings:
        yield ""
        yield from _finding_lines(finding)
    yield ""
    yield _verdict(findings)


def _vhost_lines(vhost: VhostReport) -> Iterator[str]:
    stopped = {"new": "no messages yet", "clean": "stopped cleanly", "unclean": "not stopped cleanly"}[vhost.stopped]
    yield f"virtual host {vhost.name}  ({vhost.directory}): {stopped}"
    if vhost.stopped == "new":
        return
    queues = sorted(vhost.queues, key=lambda queue: -queue.messages)
    rows = [
        (
            _printable(queue.name) if queue.name is not None else f"(number {queue.number})",
            f"{queue.messages:,}",
            shown_size(queue.message_bytes),
            f"{queue.segment_messages:,}",
            shown_size(queue.segment_bytes),
            f"{queue.journal_messages:,}",
            shown_size(queue.journal_bytes),
        )
        for queue in queues
    ]
    yield from _table(("queue", "ready", "bodies", "in segments", "bodies", "in journal", "bodies"), rows)
    files = sorted(vhost.files, key=lambda file: -file.size)
    rows_of_files = [
        (file.name, shown_size(file.size), shown_size(file.live), shown_size(file.garbage)) for file in files
    ]
    yield from _table(("message store", "size", "live", "garbage"), rows_of_files)
    size, live = sum(file.size for file in files), sum(file.live for file in files)
    messages = sum(queue.messages for queue in queues)
    yield (
        f"  {_counted(len(queues), 'queue')}, {_counted(messages, 'message')}; "
        f"message store: {_counted(len(files), 'file')}, {shown_size(size)}, "
        f"live {shown_size(live)}, garbage {shown_size(size - live)}; "
        f"journal: {_counted(vhost.journal_files, 'file')}, {shown_size(vhost.journal_bytes)}"
        + (f", {_counted(vhost.in_transit, 'dead letter')} in transit" if vhost.in_transit else "")
    )


def _printable(text: str) -> str:
    """`text` with escapes for bytes that are not UTF-8, which names may contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first SHOWN_MOST rows, with names aligned left and numbers right."""
    if not rows:
        return
    shown = [head, *rows[:SHOWN_MOST]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    for row in shown:
        yield "  " + "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        )
    if len(rows) > SHOWN_MOST:
        yield f"  and {len(rows) - SHOWN_MOST:,} smaller ones"
    yield ""


def _finding_lines(finding: Finding) -> Iterator[str]:
    where = finding.place if finding.offset is None else f"{finding.place}, byte {finding.offset:,}"
    severity = click.style(finding.severity.name.lower(), fg=COLOURS[finding.severity], bold=True)
    yield f"{severity}: {where}: {finding.found}"
    yield f"  next start: {finding.outcome}"


def _verdict(findings: Sequence[Finding]) -> str:
    counts = [
        (severity, sum(finding.severity is severity for finding in findings))
        for severity in sorted(Severity, reverse=True)
    ]
    shown = ", ".join(_counted(count, severity.name.lower()) for severity, count in counts if count)
    if not shown:
        return "Fine: nothing found."
    return f"Fine: {shown}." if counts[0][1] == counts[1][1] == 0 else f"Not fine: {shown}."
