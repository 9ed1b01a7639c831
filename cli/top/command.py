"""`warren top`: the command. It imports Textual when it runs, so that no other command starts slower."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..failure import EX_UNAVAILABLE, EX_USAGE, CommandFailure
from ..node_command import Call, node_command


@node_command("Monitoring, observability and health checks")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two updates.",
)
def top(call: Call, interval: float) -> None:
    """Show queues, connections and channels live in the terminal: states, lengths and rates, in any order.

    A sentence at the top names the reason why connections are blocked. The arrow keys choose the column by which the
    list is sorted, / filters by a part of the name, and q quits. It needs Textual: pip install 'warren-mq[top]'
    """
    if call.is_machine:
        raise CommandFailure("top draws on a terminal; for programs there are list_queues and diagnose", EX_USAGE)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailure("top needs a terminal; without one use list_queues, list_connections, diagnose", EX_USAGE)
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise CommandFailure(
            "top draws with Textual, which is not installed: pip install 'warren-mq[top]'", EX_UNAVAILABLE
        ) from None
    from .feed import Feed

    # A node that cannot be reached is an error before the screen is drawn, as with every other command.
    name, target = call.node.node_name, call.target
    call.close()

    def make_feed(took: Any, lost: Any) -> Feed:
        return Feed(target, interval, took, lost)

    run(name, make_feed)
