"""`warren diagnose`: prints which stage holds which clients back, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import click

from ..formatters import cell
from ..node_command import Call, node_command
from .status_lines import alarm_lines

#: How many connections a sentence names for one cause; it counts the others.
NAMED = 3

#: The width in characters to which sentences for people are wrapped.
WIDTH = 100


@node_command("Monitoring, observability and health checks", timeout=120.0)
def diagnose(call: Call) -> None:
    """Print for each cause a sentence: which stage holds which connections back, and what to do about it.

    With a formatter for programs: a row for each connection that is held back.
    """
    rows = list(call.node.rows("diagnose"))
    if call.is_machine:
        call.list(
            ("connection", "user", "vhost", "state", "bottleneck", "subject", "evidence", "advice"),
            rows,
        )
        return
    if not rows:
        # An alarm blocks a connection only when its client publishes.
        alarms = alarm_lines(call.ask("status"))
        for line in alarms:
            click.secho(line, bold=True)
            click.echo("  No client publishes now. The first message of a client will block its connection.")
        if not alarms:
            found = "none is in flow, and no alarm is on"
            click.echo(f"Nothing holds a connection back on node {call.node_name}: {found}.")
        return
    for cause, sentence in causes(rows):
        click.secho(cause, bold=True)
        click.echo(textwrap.fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))


def causes(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """What holds connections back, and a sentence about it with the advice; what holds back the most comes first.

    rows   those of the operation `diagnose`
    """
    of_cause: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        of_cause.setdefault((row["bottleneck"], row["subject"]), []).append(row)
    found = []
    for (bottleneck, subject), held_back in sorted(of_cause.items(), key=lambda cause: -len(cause[1])):
        names = [cell(row["connection"]) for row in held_back]
        more = len(names) - NAMED
        others = f" and {more} other{'s' if more > 1 else ''}" if more > 0 else ""
        who = f"the connection {names[0]}" if len(names) == 1 else f"{len(names)} connections"
        which = "" if len(names) == 1 else f" ({', '.join(names[:NAMED])}{others})"
        evidence = cell(held_back[0]["evidence"])
        if evidence.startswith("blocked "):
            evidence = f"it {evidence}"
        text = f"It holds back {who}{which}: {evidence}. {held_back[0]['advice']}"
        found.append((cell(f"{bottleneck.capitalize()}: {subject}"), text))
    return found


@node_command("Monitoring, observability and health checks", timeout=120.0)
@click.option("--connection", metavar="NAME", help="Only the connection with this name or pid.")
def flow_chain(call: Call, connection: str | None) -> None:
    """Show for each connection the stages from its client to the disk: what blocks each one, and for how long.

    The stage that holds all others back is marked.
    """
    rows = list(call.node.rows("flow_chain", connection=connection))
    if call.is_machine:
        columns = ("connection", "stage", "name", "state", "blocked_share", "blocked_by", "bottleneck")
        call.list(columns, rows)
        return
    if not rows:
        click.echo(f"Node {call.node_name} has no connections.")
    for row in rows:
        what = f"connection {row['name']}" if row["stage"] == "connection" else f"  {row['stage']} {row['name']}"
        by = (
            f", blocked for {row['blocked_share']:.0%} of 5 s by {', '.join(row['blocked_by'])}"
            if row["blocked_by"]
            else ""
        )
        mark = "  <- the bottleneck" if row["bottleneck"] else ""
        click.secho(cell(f"{what}: {row['state']}{by}{mark}"), bold=row["bottleneck"])
