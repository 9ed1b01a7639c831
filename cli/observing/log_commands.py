"""The commands that follow a node: its log and its events (CM-203, CM-204)."""

from __future__ import annotations

import click

from ..formatters import dumped
from ..node_command import BadArguments, Call, node_command

SECTION = "Monitoring, observability and health checks"


def _duration(text: str) -> float | None:
    """Seconds as `rabbitmq-diagnostics` takes them: a whole number, or `infinity`."""
    if text == "infinity":
        return None
    if not text.isdecimal():
        raise BadArguments(f"Bad argument: '{text}' is neither a number of seconds nor infinity", is_data=True)
    return float(text)


@node_command(SECTION, "Log file location(s) on node {node} ...", timeout=60.0)
@click.option("--all", "-a", "everything", is_flag=True, help="Name the standard error too, if the node logs there.")
def log_location(call: Call, everything: bool) -> None:
    """Show the files to which the node writes its log; `<stderr>` if that is its standard error."""
    found = call.ask("log_location")
    paths = found or ["<stderr>"]
    if call.is_machine:
        call.facts({"node_name": call.node_name, "paths": paths if everything else found, "result": "ok"})
        return
    for path in paths:
        click.echo(path)


@node_command(SECTION, timeout=60.0)
@click.option("-N", "--number", type=int, default=50, help="How many lines.  [default: 50]")
def log_tail(call: Call, number: int) -> None:
    """Show the last lines of the node's log file."""
    if number < 1:
        raise BadArguments("Bad argument: the number of lines must be 1 or more", is_data=True)
    call.banner(f"Last {number} log lines on node {call.node_name} ...")
    for row in call.node.rows("log_tail", lines=number):
        click.echo(row["line"])


@node_command(SECTION)
@click.option("-d", "--duration", default="infinity", help="Seconds, or `infinity`, which is the default.")
def log_tail_stream(call: Call, duration: str) -> None:
    """Show the lines of the node's log as they come, until Ctrl-C or for the DURATION."""
    seconds = _duration(duration)
    call.banner(f"Streaming logs from node {call.node_name} ...")
    for row in call.node.rows("log_tail_stream", duration=seconds):
        click.echo(dumped(row) if call.is_machine else row["text"])


@node_command(SECTION)
@click.option("-d", "--duration", default="infinity", help="Seconds, or `infinity`, which is the default.")
@click.option("--pattern", default="#", help="Events that match this topic pattern, such as queue.*.  [default: #]")
def consume_event_stream(call: Call, duration: str, pattern: str) -> None:
    """Show what happens in the node as it happens, each event as a JSON object, until Ctrl-C or for the DURATION."""
    seconds = _duration(duration)
    for row in call.node.rows("consume_event_stream", duration=seconds, pattern=pattern):
        click.echo(dumped(row))


COMMANDS = (log_location, log_tail, log_tail_stream, consume_event_stream)
