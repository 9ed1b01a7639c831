"""`warren observer`: the busiest processes of a node, like `top` of an operating system (CM-207)."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import click

from ..formatters import listing
from ..node_command import Call, node_command

COLUMNS = ("process", "name", "mailbox", "message_rate", "turns", "busy")

#: Moves the cursor to the upper left corner and clears the screen.
CLEARED = "\033[H\033[J"

#: Lines of the screen that are no rows: the headline, the names of the columns and the cursor's line.
OTHER_LINES = 4

#: How many processes are listed at most if the output is not a terminal.
LISTED = 100


@node_command("Monitoring, observability and health checks", timeout=60.0)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds between two looks at the node.",
)
def observer(call: Call, interval: float) -> None:
    """Show the busiest processes of the node: connections, channels, queues and those that belong to the node.

    MAILBOX is how many messages wait for the process, BUSY its share of the time in per cent. On a terminal the table
    is drawn again until Ctrl-C; otherwise it is printed once, after one interval.
    """
    call.ask("processes", most=1)
    if call.is_machine or not sys.stdout.isatty():
        time.sleep(interval)
        call.list(COLUMNS, call.node.rows("processes", most=LISTED))
        return
    try:
        while True:
            time.sleep(interval)
            columns, lines = shutil.get_terminal_size()
            rows = list(call.node.rows("processes", most=max(1, lines - OTHER_LINES)))
            click.echo(CLEARED + "\n".join(screen(call.node_name, interval, rows, columns)))
            call.node.allow(60.0 + interval)
    except KeyboardInterrupt:
        click.echo()


def screen(node: str, interval: float, rows: list[dict[str, Any]], columns: int) -> list[str]:
    """The lines of a screen of this many columns."""
    busy = sum(row["busy"] for row in rows)
    head = f"{node}: {len(rows)} processes were busy in the last {interval:g} s, {busy:.1f} % of the time. Ctrl-C ends."
    # Remove style codes before cutting the lines, because a code could be cut in two.
    names, *lines = [click.unstyle(line)[:columns] for line in listing("table", COLUMNS, iter(rows), True, True)]
    return [head[:columns], "", click.style(names, bold=True), *lines]
