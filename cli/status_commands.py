"""The commands about the node as a whole: ping, status, await_startup, stop."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from .node_command import Call, node_command

SECTION = "Nodes"

#: Seconds between two looks at the process of a node that stops.
PROCESS_CHECK = 0.02


@node_command(SECTION, "Will ping {node}.", timeout=60.0)
def ping(call: Call) -> None:
    """Check that the node answers."""
    call.ask("ping")
    call.say("Ping succeeded")


@node_command(SECTION, "Status of node {node} ...", timeout=60.0)
@click.option(
    "--unit", type=click.Choice(["bytes", "mb", "gb"]), default="gb", help="Unit of memory and disk.  [default: gb]"
)
def status(call: Call, unit: str) -> None:
    """Show what the node is, what it uses and where it listens. `--formatter json` has every figure."""
    facts = call.ask("status")
    if call.is_machine:
        call.facts(facts)
        return
    for title, lines in _sections(facts, unit):
        click.secho(title, bold=True)
        click.echo()
        for line in lines or ["(none)"]:
            click.echo(line)
        click.echo()


def _sections(facts: dict[str, Any], unit: str) -> list[tuple[str, list[str]]]:
    used = facts["memory"]["total"]["rss"]
    setting = facts["vm_memory_high_watermark_setting"]
    return [
        (
            "Runtime",
            [
                f"OS PID: {facts['pid']}",
                f"OS: {facts['os']}",
                f"Uptime (seconds): {facts['uptime']}",
                f"Is running: {'yes' if facts['is_running'] else 'no, it is starting'}",
                f"Is under maintenance?: {'true' if facts['is_under_maintenance'] else 'false'}",
                f"warren version: {facts['warren_version']}",
                f"RabbitMQ version: {facts['rabbitmq_version']}",
                f"Node name: {facts['node']}",
                f"Python: {facts['erlang_version']}",
            ],
        ),
        ("Data directory", [f"Node data directory: {facts['data_directory'] or '(none: everything is in memory)'}"]),
        ("Config files", [f" * {path}" for path in facts["config_files"]]),
        ("Log file(s)", [f" * {path}" for path in facts["log_files"]]),
        ("Alarms", [f"{one['resource'].capitalize()} alarm on node {one['node']}" for one in facts["alarms"]]),
        (
            "Memory",
            [
                f"Total memory used: {_amount(used, unit)}",
                f"Calculation strategy: {facts['vm_memory_calculation_strategy']}",
                f"Memory high watermark setting: {next(iter(setting.values()))}, computed to: "
                + _amount(facts["vm_memory_high_watermark_limit"], unit),
            ],
        ),
        (
            "Free Disk Space",
            []
            if facts["disk_free_limit"] is None
            else [
                f"Low free disk space watermark: {_amount(facts['disk_free_limit'], unit)}",
                f"Free disk space: {_amount(facts['disk_free'], unit)}",
            ],
        ),
        (
            "Totals",
            [
                f"Connection count: {facts['totals']['connection_count']}",
                f"Queue count: {facts['totals']['queue_count']}",
                f"Virtual host count: {facts['totals']['virtual_host_count']}",
            ],
        ),
        (
            "Listeners",
            [
                "Interface: {interface}, port: {port}, protocol: {protocol}, purpose: {purpose}".format_map(one)
                for one in facts["listeners"]
            ],
        ),
    ]


def _amount(size: int | None, unit: str) -> str:
    if size is None:
        return "unknown"
    return f"{size} bytes" if unit == "bytes" else f"{size / {'mb': 1e6, 'gb': 1e9}[unit]:.4g} {unit}"


@node_command(SECTION, timeout=300.0)
def await_startup(call: Call) -> None:
    """Return when the node has started, which may take long after a crash; exit 70 if that takes too long."""
    call.ask("await_startup", timeout=call.timeout)


@node_command(SECTION, "Stopping and halting node {node} ...")
@click.option("--wait/--no-wait", default=True, help="Return when the node's process has ended, which is the default.")
@click.option("--idempotent", is_flag=True, help="A node that does not run is success.")
def stop(call: Call, wait: bool, idempotent: bool) -> None:
    """Stop the node cleanly: close all connections, write everything to disk, end the process."""
    from .node_client import Unreachable

    try:
        pid = call.ask("stop")
    except Unreachable:
        if idempotent:
            return
        raise
    if wait:
        call.node.await_end()
        while call.target.address is None and _runs(pid):
            time.sleep(PROCESS_CHECK)


def _runs(pid: int) -> bool:
    """Whether the process has not ended. One that ended, and whose parent has not noticed yet, has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        pass  # there is no such process, or no /proc
    else:
        return state != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


COMMANDS = (ping, status, await_startup, stop)
