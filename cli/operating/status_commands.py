"""The commands about the node as a whole: its start and stop, its status, and what it uses."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ...runtime.machine.running import is_running
from ..failure import EX_TEMPFAIL, EX_UNAVAILABLE, CommandFailure
from ..node_command import BadArguments, Call, node_command
from ..observing.status_lines import alarm_lines, listener_line

SECTION = "Nodes"

MONITORING = "Monitoring, observability and health checks"

UNIT = click.option(
    "--unit", type=click.Choice(["bytes", "mb", "gb"]), default="gb", help="Unit of memory and disk.  [default: gb]"
)

#: Seconds between two checks whether a node answers, its process has ended, or its pid file exists.
PROCESS_CHECK = 0.02


@node_command(SECTION, "Will ping {node}.", timeout=60.0)
def ping(call: Call) -> None:
    """Check that the node answers."""
    call.ask("ping")
    call.say("Ping succeeded")


@node_command(SECTION, "Status of node {node} ...", timeout=60.0)
@UNIT
def status(call: Call, unit: str) -> None:
    """Show what the node is, what it uses and where it listens. `--formatter json` has every figure."""
    facts = status_facts(call)
    if call.is_machine:
        call.facts(facts)
        return
    for title, lines in status_sections(facts, unit):
        click.secho(title, bold=True)
        click.echo()
        for line in lines or ["(none)"]:
            click.echo(line)
        click.echo()


def status_facts(call: Call) -> dict[str, Any]:
    """The node's status. It has the memory use by category if the node has started and can measure its memory."""
    facts: dict[str, Any] = call.ask("status")
    if facts["is_running"] and facts["memory"]["total"]["rss"] is not None:
        facts["memory"] |= call.ask("memory_breakdown")
    return facts


def status_sections(facts: dict[str, Any], unit: str) -> list[tuple[str, list[str]]]:
    """The sections of `status` for a person: the title and the lines of each."""
    used, descriptors = facts["memory"]["total"]["rss"], facts["file_descriptors"]
    setting = facts["vm_memory_high_watermark_setting"]
    return [
        (
            "Runtime",
            [
                f"OS PID: {facts['pid']}",
                f"OS: {facts['os']}",
                f"Uptime (seconds): {facts['uptime']}",
                f"Is running: {'yes' if facts['is_running'] else 'no, it is ' + facts['app']}",
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
        ("Alarms", alarm_lines(facts)),
        (
            "Memory",
            [
                f"Total memory used: {_amount(used, unit)}",
                f"Calculation strategy: {facts['vm_memory_calculation_strategy']}",
                f"Memory high watermark setting: {next(iter(setting.values()))}, computed to: "
                + _amount(facts["vm_memory_high_watermark_limit"], unit),
                *_memory_lines(facts["memory"], unit),
            ],
        ),
        (
            "File Descriptors",
            [
                f"Total: {descriptors['total_used']}, limit: {descriptors['total_limit']}",
                f"Sockets: {descriptors['sockets_used']}, limit: {descriptors['sockets_limit']}",
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
            "Longest turns",
            [
                f" * {turn['seconds'] * 1000:.1f} ms: {turn['process']}, {turn['message']}"
                for turn in facts["longest_turns"]
            ],
        ),
        (
            "Listeners",
            [listener_line(one) for one in facts["listeners"]],
        ),
    ]


def _memory_lines(memory: dict[str, Any], unit: str) -> list[str]:
    """The categories that use memory, the largest first, behind an empty line; nothing if they are unknown."""
    sizes = {name: size for name, size in memory.items() if name not in ("total", "strategy")}
    total = max(1, sum(sizes.values()))
    lines = [
        f"{name}: {_amount(size, unit)} ({round(100 * size / total, 2)} %)"
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    ]
    return ["", *lines] if lines else []


def _amount(size: int | None, unit: str) -> str:
    if size is None:
        return "unknown"
    return f"{size} bytes" if unit == "bytes" else f"{size / {'mb': 1e6, 'gb': 1e9}[unit]:.4g} {unit}"


@node_command(SECTION, timeout=300.0)
def await_startup(call: Call) -> None:
    """Return when the node has started, which may take long after a crash; exit 70 if that takes too long."""
    call.ask("await_startup", timeout=call.timeout)


@node_command(SECTION, timeout=10.0)
@click.argument("pidfile", required=False)
@click.option("-P", "--pid", type=int, help="The number of the node's process, instead of a file that has it.")
def wait(call: Call, pidfile: str | None, pid: int | None) -> None:
    """Return when a node that was just started serves clients; exit 69 if its process ends before.

    PIDFILE has the number of the node's process; the command waits for the file, too.
    """
    if pidfile is None and pid is None:
        raise BadArguments("No pid or pidfile specified")
    if pidfile is not None and pid is not None:
        raise BadArguments("Cannot specify both pid and pidfile")
    ends = time.monotonic() + _seconds_of(call)
    if pid is None:
        assert pidfile is not None
        call.banner(f"Waiting for pid file '{pidfile}' to appear")
        pid = _pid_in(call, Path(pidfile), ends)
        call.banner(f"pid is {pid}")
    call.banner(f"Waiting for node '{call.asked_name}' to answer while OS process '{pid}' is running")
    while not _answers(call):
        if not is_running(pid):
            raise CommandFailure("process_not_running", EX_UNAVAILABLE)
        _pause(call, ends)
    call.banner(f"Waiting for the app to start on node '{call.node_name}'")
    call.ask("await_startup", timeout=max(0.0, ends - time.monotonic()))
    call.banner(f"The app is running on node '{call.node_name}'")


def _seconds_of(call: Call) -> float:
    assert call.timeout is not None, "this command has a default"
    return call.timeout


def _pid_in(call: Call, pidfile: Path, ends: float) -> int:
    """The process number in this file. Waits until the file exists and has one."""
    while True:
        with suppress(OSError, ValueError):
            return int(pidfile.read_text("ascii"))
        _pause(call, ends)


def _answers(call: Call) -> bool:
    from ..node_client import Unreachable

    try:
        call.connect_again()
    except Unreachable:
        return False
    return True


def _pause(call: Call, ends: float) -> None:
    """Wait before the next check. Raises CommandFailure if the command's time would be over by then."""
    if time.monotonic() + PROCESS_CHECK > ends:
        used = f"Timeout value used: {_seconds_of(call) * 1000:.0f}"
        raise CommandFailure(f"operation wait on node {call.asked_name} timed out. {used}", EX_TEMPFAIL)
    time.sleep(PROCESS_CHECK)


@node_command(SECTION, "Stopping rabbit application on node {node} ...", timeout=300.0)
def stop_app(call: Call) -> None:
    """Stop serving clients, and keep the node: it answers commands, and goes on voting in its cluster."""
    if call.ask("stop_app"):
        call.await_next_run()
    call.done()


@node_command(SECTION, "Starting node {node} ...", timeout=300.0)
def start_app(call: Call) -> None:
    """Serve clients again after `stop_app`; return when the node does. Exit 69 with the reason if it cannot."""
    call.ask("start_app")
    call.done()


@node_command(SECTION, "Stopping and halting node {node} ...")
@click.option("--wait/--no-wait", default=True, help="Return when the node's process has ended, which is the default.")
@click.option("--idempotent", is_flag=True, help="Succeed if the node does not run.")
def stop(call: Call, wait: bool, idempotent: bool) -> None:
    """Stop the node cleanly: close all connections, write everything to disk, end the process."""
    from ..node_client import Unreachable

    try:
        pid = call.ask("stop")
    except Unreachable:
        if idempotent:
            return
        raise
    if wait:
        _await_end(call, pid)


@node_command(SECTION, timeout=300.0)
@click.option("--wait/--no-wait", default=True, help="Return when the node's process has ended, which is the default.")
def shutdown(call: Call, wait: bool) -> None:
    """Stop the node cleanly, as `stop` does, and report the process that ends."""
    node, pid = call.node_name, call.ask("stop")
    call.banner(f"Shutting down RabbitMQ node {node} running at PID {pid}")
    if wait:
        call.banner(f"Waiting for PID {pid} to terminate")
        _await_end(call, pid)
        call.banner(f"RabbitMQ node {node} running at PID {pid} successfully shut down")
    call.done()


def _await_end(call: Call, pid: int) -> None:
    """Return when the node has closed the connection, and its process has ended if it is one of this machine."""
    call.node.await_end()
    while call.target.address is None and is_running(pid):
        time.sleep(PROCESS_CHECK)


@node_command(SECTION, "Asking node {node} for its RabbitMQ version...", timeout=60.0)
def server_version(call: Call) -> None:
    """Show the version of RabbitMQ with which the node is compatible; `status` has warren's own."""
    version = call.ask("status")["rabbitmq_version"]
    if call.is_machine:
        call.facts({"result": "ok", "value": version})
    else:
        click.echo(version)


@node_command(MONITORING, "Reporting memory breakdown on node {node}...", timeout=60.0)
@UNIT
def memory_breakdown(call: Call, unit: str) -> None:
    """Show what uses the node's memory, by RabbitMQ's categories."""
    sizes = call.ask("memory_breakdown")
    total = max(1, sum(sizes.values()))
    found = {
        name: {"bytes": size, "percentage": round(100 * size / total, 2)}
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    }
    if call.formatter == "csv":
        call.list(("category", "bytes", "percentage"), ({"category": name, **one} for name, one in found.items()))
    elif call.is_machine:
        call.facts(found)
    else:
        for name, one in found.items():
            click.echo(f"{name}: {_amount(int(one['bytes']), unit)} ({one['percentage']}%)")


@node_command(
    "Configuration and environment",
    "Listing the environment variables of warren on node {node}...",
    timeout=60.0,
)
def os_env(call: Call) -> None:
    """Show the environment variables that the node reads. Secrets are blanked."""
    rows = call.node.rows("os_env")
    if call.is_machine:
        call.list(("key", "value"), rows)
        return
    for row in rows:
        click.echo(f"{row['key']}={row['value']}")


@node_command("Configuration and environment", "Command line arguments of node {node} ...", timeout=60.0)
def command_line_arguments(call: Call) -> None:
    """Show the command line with which the node was started."""
    words = call.ask("command_line_arguments")
    if call.is_machine:
        call.facts({"arguments": words})
    else:
        click.echo(shlex.join(words))


@node_command(MONITORING)
@click.option("--sample-interval", type=float, default=5.0, help="Seconds to measure.  [default: 5]")
def runtime_thread_stats(call: Call, sample_interval: float) -> None:
    """Show how much processor time each thread of the node takes. In a server MainThread runs all actors."""
    call.banner(f"Will collect runtime thread stats on {call.node_name} for {sample_interval:g} seconds...")
    call.list(
        ("thread", "id", "cpu_seconds", "percent"), call.node.rows("runtime_thread_stats", interval=sample_interval)
    )


@node_command(SECTION, "Will collect garbage on node {node} and give free memory back to the system", timeout=60.0)
def force_gc(call: Call) -> None:
    """Collect garbage and give free memory back to the system. The node does both by itself when memory runs low."""
    freed = call.ask("force_gc")
    call.say(f"{freed} bytes were freed")


@node_command(MONITORING, 'Listing authentication attempts for node "{node}" ...', timeout=60.0)
@click.option("--by-source", is_flag=True, help="List the most recent addresses and users, a row each.")
def list_node_auth_attempt_stats(call: Call, by_source: bool) -> None:
    """List how many logins the node has accepted and refused since its start."""
    columns = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
    call.list(
        ("remote_address", "username", *columns) if by_source else columns,
        call.node.rows("list_node_auth_attempt_stats", by_source=by_source),
    )


COMMANDS = (
    ping,
    status,
    await_startup,
    wait,
    start_app,
    stop_app,
    stop,
    shutdown,
    server_version,
    memory_breakdown,
    os_env,
    command_line_arguments,
    runtime_thread_stats,
    force_gc,
    list_node_auth_attempt_stats,
)
