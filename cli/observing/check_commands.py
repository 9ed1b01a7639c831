"""The health checks: each succeeds, or ends with 69 and a text about what is wrong (CM-190 to CM-198).

The texts are those of `rabbitmq-diagnostics`. With a JSON formatter a check prints one object with `result`,
`message` and what it found.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import click

from ..failure import EX_SOFTWARE, EX_UNAVAILABLE, CommandFailure
from ..node_client import NodeFailure
from ..node_command import BadArguments, Call, node_command
from .status_lines import alarm_lines, listener_line

SECTION = "Monitoring, observability and health checks"

#: Seconds that a connection to a listener may take.
CONNECT_SECONDS = 10.0

#: A command that waits looks again after this many seconds.
LOOK_SECONDS = 0.5
#: The node must answer each look within this many seconds.
ANSWER_SECONDS = 30.0

#: Seconds of a day, and the days of each unit in which RabbitMQ measures the life of a certificate.
DAY = 86_400
UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}

#: For each other name of a protocol, in small letters without hyphens and underscores: the name that listeners have.
PROTOCOLS = {
    "amqp091": "amqp",
    "amqp10": "amqp",
    "amqps": "amqp/ssl",
    "amqpssl": "amqp/ssl",
    "cli": "clustering",
    "distribution": "clustering",
    "httpapi": "http",
    "management": "http",
    "ui": "http",
    "prometheus": "http/prometheus",
}

#: Addresses that stand for all addresses of a machine, each with one to which a command on this machine can connect.
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class CheckFailed(CommandFailure):
    """A check that found something wrong."""

    def __init__(self, text: str, **facts: Any) -> None:
        super().__init__(text, EX_UNAVAILABLE)
        self.facts = facts

    def show(self, file: Any = None) -> None:
        click.echo(f"Error:\n{self.message}", err=True)


def running_status(call: Call) -> dict[str, Any]:
    """The status of a node that has started. Raises NodeFailure if it is still starting."""
    facts: dict[str, Any] = call.ask("status")
    if not facts["is_running"]:
        raise NodeFailure(
            "usage",
            "this command requires the 'warren' app to be running on the target node, which is still starting. "
            "Wait for it with 'warren await_startup'.",
            [],
        )
    return facts


# -- whether it runs ---


def _running_text(call: Call, is_running: bool) -> str:
    state = "is fully booted and running" if is_running else "is not running or has not fully booted yet"
    return f"RabbitMQ on node {call.node_name} {state}{'' if is_running else ' (check with is_booting)'}"


@node_command(SECTION, "Checking if RabbitMQ is running on node {node} ...", timeout=60.0)
def check_running(call: Call) -> None:
    """Check that the node has started; exit 69 if it is still starting or cannot be reached."""
    is_running = not call.ask("is_booting")
    if not is_running:
        raise CheckFailed(_running_text(call, False))
    call.checked(_running_text(call, True))


@node_command(SECTION, "Asking node {node} for its status ...", timeout=60.0)
def is_running(call: Call) -> None:
    """Print whether the node has started. The exit code is 0 either way if the node answers."""
    answer = not call.ask("is_booting")
    call.checked(_running_text(call, answer), result=answer)


@node_command(SECTION, "Asking node {node} for its boot status ...", timeout=60.0)
def is_booting(call: Call) -> None:
    """Print whether the node is still starting. The exit code is 0 either way if the node answers."""
    answer = call.ask("is_booting")
    state = (
        "is booting" if answer else "is fully booted (check with is_running), stopped or has not started booting yet"
    )
    call.checked(f"RabbitMQ on node {call.node_name} {state}", result=answer)


# -- alarms ---


@node_command(SECTION, "Asking node {node} to report any local resource alarms ...", timeout=60.0)
def check_local_alarms(call: Call) -> None:
    """Check that neither memory nor disk of the node runs low; exit 69 with the alarms otherwise."""
    lines = alarm_lines(running_status(call))
    if lines:
        raise CheckFailed("\n".join(lines), local=lines)
    call.checked(f"Node {call.node_name} reported no local alarms")


@node_command(SECTION, "Asking node {node} to report any local resource alarms ...", timeout=60.0)
def check_alarms(call: Call) -> None:
    """Check that no node of the cluster has an alarm; exit 69 with the alarms otherwise."""
    lines = alarm_lines(running_status(call))
    if lines:
        raise CheckFailed("\n".join(lines), local=lines, **{"global": []})
    call.checked(f"Node {call.node_name} reported no alarms, local or clusterwide")


@node_command(SECTION, "Asking node {node} to report any known resource alarms ...", timeout=60.0)
def alarms(call: Call) -> None:
    """List the alarms of memory and disk."""
    lines = alarm_lines(running_status(call))
    if lines:
        call.checked("\n".join(lines), local=lines, **{"global": []})
    else:
        call.checked(f"Node {call.node_name} reported no alarms, local or clusterwide", alarms=[])


# -- listeners ---


@node_command(SECTION, "Asking node {node} to report its protocol listeners ...", timeout=60.0)
def listeners(call: Call) -> None:
    """List where the node listens: interface, port, protocol and purpose."""
    found = running_status(call)["listeners"]
    call.checked("\n".join(map(listener_line, found)), listeners=found)


@node_command(SECTION, timeout=60.0)
@click.argument("port")
def check_port_listener(call: Call, port: str) -> None:
    """Check that the node listens on PORT; otherwise exit 69 with the ports on which it listens."""
    if not port.isdecimal() or int(port) == 0:
        raise BadArguments("Bad argument: Argument must be a positive integer", is_data=True)
    node = call.node_name
    call.banner(f"Asking node {node} if there's an active listener on port {port} ...")
    found = running_status(call)["listeners"]
    if int(port) not in [one["port"] for one in found]:
        ports = ", ".join(str(one["port"]) for one in found)
        raise CheckFailed(
            f"No listener for port {port} is active on node {node}. "
            f"Found listeners that use the following ports: {ports}",
            port=port,
            listeners=found,
        )
    call.checked(f"A listener for port {port} is running on node {node}.", port=port)


@node_command(SECTION, "Asking node {node} if there's an active listener for protocol {protocol} ...", timeout=60.0)
@click.argument("protocol")
def check_protocol_listener(call: Call, protocol: str) -> None:
    """Check that the node listens for PROTOCOL, such as amqp or amqps; exit 69 otherwise."""
    node = call.node_name
    wanted = PROTOCOLS.get(protocol.lower().replace("-", "").replace("_", "").replace("/", ""), protocol)
    found = running_status(call)["listeners"]
    known = sorted({one["protocol"] for one in found})
    if wanted not in known:
        raise CheckFailed(
            f"No listener for protocol {protocol} is active on node {node}. "
            f"Found listeners for the following protocols: {', '.join(known)}",
            protocol=protocol,
            listeners=found,
        )
    call.checked(f"A listener for protocol {wanted} is running on node {node}.", protocol=wanted)


@node_command(SECTION, "Testing TCP connections to all active listeners on node {node} ...", timeout=30.0)
@click.option("--host", metavar="ADDRESS", help="Connect to this address, not to those on which the node listens.")
def check_port_connectivity(call: Call, host: str | None) -> None:
    """Check that each listener of the node accepts a TCP connection; otherwise exit 69 with the ports that do not."""
    node = call.node_name
    found = running_status(call)["listeners"]
    failed = []
    for one in found:
        address = host or ANY_ADDRESS.get(one["interface"], one["interface"])
        try:
            socket.create_connection((address, one["port"]), CONNECT_SECONDS).close()
        except OSError as error:
            failed.append(f"{one['port']} ({address}: {error.strerror or error})")
    if failed:
        raise CheckFailed(f"Connection to ports of the following listeners on node {node} failed: {', '.join(failed)}")
    ports = ", ".join(str(one["port"]) for one in found)
    call.checked(f"Successfully connected to ports {ports} on node {node}.", listeners=found)


@node_command(SECTION, timeout=60.0)
@click.option("--within", type=click.IntRange(0, 10_000), default=4, help="How far to look ahead.  [default: 4]")
@click.option("--unit", default="weeks", help="The unit of --within: days, weeks, months or years.  [default: weeks]")
def check_certificate_expiration(call: Call, within: int, unit: str) -> None:
    """Check that no certificate for clients or other nodes expires soon; otherwise exit 69 with the files and dates."""
    if unit not in UNITS:
        raise BadArguments(f"unit '{unit}' is not supported. Please use one of: {', '.join(UNITS)}")
    call.banner(f"Checking certificate expiration on node {call.node_name} ...")
    span = f"{within} {unit[:-1] if within == 1 else unit}"
    expiring = list(call.node.rows("check_certificate_expiration", seconds=float(within * UNITS[unit] * DAY)))
    if expiring:
        lines = [f"  * {one['file']}: ends at {one['not_after']}" for one in expiring]
        raise CheckFailed("\n".join([f"Certificates expiring within {span}:", *lines]), certificates=expiring)
    call.checked(f"No certificates are expiring within {span}.")


# -- virtual hosts and queues ---


@node_command(SECTION, "Checking if all vhosts are running on node {node} ...", timeout=60.0)
def check_virtual_hosts(call: Call) -> None:
    """Check that all virtual hosts run; otherwise exit 69 with the names of those that do not."""
    node = call.node_name
    down = sorted(row["name"] for row in call.node.rows("list_vhosts") if row["cluster_state"].get(node) != "running")
    if down:
        raise CheckFailed(
            "\n".join([f"Some virtual hosts on node {node} are down:", *down]),
            virtual_hosts=down,
        )
    call.checked(f"Node {node} reported all vhosts as running")


#: The columns that show whether a queue keeps a majority of its members when one of them stops.
_MEMBERS = ["name", "type", "members", "online"]

#: The columns that show which replicas could take a queue over.
_MIRRORS = ["name", "slave_pids", "synchronised_slave_pids"]


def _only_one(call: Call) -> None:
    running_status(call)
    call.checked(f"Node {call.node_name} seems to be the only one in a single node cluster, the check does not apply")


@node_command(SECTION, "Checking if node {node} is critical for quorum of any quorum queues ...", timeout=60.0)
def check_if_node_is_quorum_critical(call: Call) -> None:
    """Check that every quorum queue keeps a majority of its members when the node stops; otherwise exit 69 with the
    names of the queues that do not. A node that is alone always passes.
    """
    if call.ask("cluster_status")["membership"] is None:
        _only_one(call)
        return
    node = call.node_name
    found = [
        f"{row['name']} in virtual host {vhost['name']}"
        for vhost in list(call.node.rows("list_vhosts"))
        for row in call.node.rows("list_queues", vhost=vhost["name"], columns=_MEMBERS)
        if row["type"] == "quorum" and node in row["online"] and len(row["online"]) - 1 <= len(row["members"]) // 2
    ]
    if found:
        raise CheckFailed(
            "\n".join([f"Node {node} reported local queues with minimum online quorum:", *sorted(found)]),
            queues=sorted(found),
        )
    call.checked(f"Node {node} reported no quorum queues with minimum quorum")


@node_command(
    SECTION,
    "Checking if node {node} is critical for data safety of any classic mirrored queues ...",
    timeout=60.0,
)
def check_if_node_is_mirror_sync_critical(call: Call) -> None:
    """Check that each mirrored queue whose master is on the node has another replica in sync; otherwise exit 69 with
    the names of the queues that have none. A node that is alone always passes.
    """
    if call.ask("cluster_status")["membership"] is None:
        _only_one(call)
        return
    node, found = call.node_name, _without_mirror(call)
    if found:
        raise CheckFailed(
            "\n".join([f"Node {node} reported local queues without synchronised mirrors online:", *found]), queues=found
        )
    call.checked(f"Node {node} reported no local queues without synchronised mirrors online")


def _without_mirror(call: Call) -> list[str]:
    """The mirrored queues whose master is on the node and which have no other replica in sync."""
    return sorted(
        f"{row['name']} in virtual host {vhost['name']}"
        for vhost in list(call.node.rows("list_vhosts"))
        for row in call.node.rows("list_queues", vhost=vhost["name"], local=True, columns=_MIRRORS)
        if isinstance(row["slave_pids"], list) and not row["synchronised_slave_pids"]
    )


@node_command(
    SECTION,
    "Will wait for a synchronised mirror be online for all classic mirrored queues with masters on {node} ...",
    timeout=120.0,
)
def await_online_synchronized_mirror(call: Call) -> None:
    """Return when each mirrored queue whose master is on the node has another replica in sync; after 120 s exit 70 with
    the names of the queues that have none.
    """
    end = time.monotonic() + (call.timeout or 120.0)
    while True:
        # Each look has its own time limit, so that one which starts just before the end can still name the queues.
        call.node.allow(ANSWER_SECONDS)
        if not (found := _without_mirror(call)):
            break
        if time.monotonic() >= end:
            text = "\n".join(["timed out while waiting. Queues without a synchronised mirror:", *found])
            raise CommandFailure(text, EX_SOFTWARE)
        time.sleep(LOOK_SECONDS)
    call.done()


@node_command(SECTION, "Checking health of node {node} ...", timeout=70.0)
def node_health_check(call: Call) -> None:
    """Deprecated: check that the node runs and has no alarm. Use check_running and check_local_alarms."""
    click.echo("This command is DEPRECATED. Use check_running, check_local_alarms and other checks instead.", err=True)
    facts = running_status(call)
    if facts["alarms"]:
        raise CheckFailed("\n".join(alarm_lines(facts)))
    call.checked("Health check passed")


COMMANDS = (
    check_running,
    node_health_check,
    is_running,
    is_booting,
    check_local_alarms,
    check_alarms,
    alarms,
    listeners,
    check_port_listener,
    check_protocol_listener,
    check_port_connectivity,
    check_certificate_expiration,
    check_virtual_hosts,
    check_if_node_is_quorum_critical,
    check_if_node_is_mirror_sync_critical,
    await_online_synchronized_mirror,
)
