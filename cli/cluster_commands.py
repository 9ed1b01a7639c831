"""The commands about the cluster: who belongs to it, who runs, and who leaves it (CM-46, CM-61, CM-66, CM-67)."""

from __future__ import annotations

from typing import Any

import click

from .check_commands import alarm_lines, listener_line
from .node_client import full_name
from .node_command import BadArguments, Call, node_command

SECTION = "Cluster"


@node_command(SECTION, "Cluster status of node {node} ...", timeout=60.0)
def cluster_status(call: Call) -> None:
    """Show the members of the cluster, who of them runs, their versions, alarms and listeners, and who leads."""
    answer = call.ask("cluster_status")
    asked, membership, nodes = call.node_name, answer["membership"], answer["nodes"]
    own = nodes.get(asked) or next(iter(nodes.values()))
    if call.is_machine:
        call.facts(_facts(own, membership, nodes))
        return
    for title, lines in _sections(own, membership, nodes):
        click.secho(title, bold=True)
        click.echo()
        for line in lines or ["(none)"]:
            click.echo(line)
        click.echo()


def _members(own: dict[str, Any], membership: dict[str, Any] | None) -> list[str]:
    return [own["node"]] if membership is None else [member["node"] for member in membership["members"]]


def _running(own: dict[str, Any], membership: dict[str, Any] | None) -> list[str]:
    if membership is None:
        return [own["node"]] if own["is_running"] else []
    return [member["node"] for member in membership["members"] if member["incarnation"]]


def _partitions(own: dict[str, Any], membership: dict[str, Any] | None) -> dict[str, list[str]]:
    """The members that run and to which the asked node has no link."""
    members = [] if membership is None else membership["members"]
    cut_off = [member["node"] for member in members if member["incarnation"] and not member["is_linked"]]
    return {own["node"]: cut_off} if cut_off else {}


def _maintenance(own: dict[str, Any], membership: dict[str, Any] | None) -> dict[str, str]:
    members = [] if membership is None else membership["members"]
    marked = {member["node"] for member in members if member["in_maintenance"]}
    return {
        node: "under maintenance" if node in marked else "not under maintenance" for node in _members(own, membership)
    }


def _sections(
    own: dict[str, Any], membership: dict[str, Any] | None, nodes: dict[str, dict[str, Any]]
) -> list[tuple[str, list[str]]]:
    partitions = _partitions(own, membership)
    return [
        ("Basics", [f"Cluster name: {own['cluster_name']}"]),
        *([] if membership is None else [("Membership", _membership_lines(own["node"], membership))]),
        ("Disk Nodes", _members(own, membership)),
        ("Running Nodes", _running(own, membership)),
        (
            "Versions",
            [
                f"{node}: RabbitMQ {facts['rabbitmq_version']} on {facts['erlang_version']}"
                for node, facts in sorted(nodes.items())
            ],
        ),
        (
            "Maintenance status",
            [f"Node: {node}, status: {status}" for node, status in _maintenance(own, membership).items()],
        ),
        ("Alarms", [line for _, facts in sorted(nodes.items()) for line in alarm_lines(facts)]),
        (
            "Network Partitions",
            [f"Node {node} cannot communicate with {', '.join(others)}" for node, others in partitions.items()],
        ),
        (
            "Listeners",
            [
                f"Node: {node}, {_uncapitalised(listener_line(one))}"
                for node, facts in sorted(nodes.items())
                for one in facts["listeners"]
            ],
        ),
        ("Feature flags", []),
    ]


def _membership_lines(node: str, membership: dict[str, Any]) -> list[str]:
    """What a tired person wants to know first: who leads, who is missing, and how many more may fail."""
    voters, members = membership["voters"], {member["node"]: member for member in membership["members"]}
    running = [voter for voter in voters if members.get(voter, {}).get("incarnation")]
    lines = [
        f"Leader: {membership['leader']} (term {membership['term']})" if membership["leader"] else "Leader: (none)"
    ]
    if membership["waits_for"]:
        lines.append(f"{node} is {membership['stage']}: {membership['waits_for']}")
    elif membership["stage"] != "running":
        lines.append(f"{node} is {membership['stage']}")
    lines += [_member_line(member, member["node"] in voters) for member in membership["members"]]
    lines.append(_reserve(len(voters), len(running)))
    return lines


def _member_line(member: dict[str, Any], is_voter: bool) -> str:
    kind = member["role"] if member["role"] != "data" else ("voter" if is_voter else "learner")
    line = f"{member['node']}: {kind}, {'up' if member['incarnation'] else 'down'}, at {member['address']}"
    return f"{line} ({member['reason']})" if member["reason"] else line


def _reserve(voters: int, running: int) -> str:
    """How many more nodes may fail."""
    more = running - (voters // 2 + 1)
    if voters < 2:
        return "The node is the only voter: nothing is served while it is down"
    if more < 0:
        return f"{running} of {voters} voters run, which is no majority: {-more} more must be started"
    text = f"{running} of {voters} voters run: {more} more may fail"
    if voters % 2 == 0:
        text += "; an even number of voters survives no more failures than one voter less, so add a node"
    return text


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _facts(own: dict[str, Any], membership: dict[str, Any] | None, nodes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The object of CM-67."""
    return {
        "cluster_name": own["cluster_name"],
        "disk_nodes": _members(own, membership),
        "ram_nodes": [],
        "running_nodes": _running(own, membership),
        "partitions": _partitions(own, membership),
        "alarms": [alarm for facts in nodes.values() for alarm in facts["alarms"]],
        "listeners": {node: facts["listeners"] for node, facts in nodes.items()},
        "versions": {
            node: {
                "rabbitmq_name": "RabbitMQ",
                "rabbitmq_version": facts["rabbitmq_version"],
                "erlang_version": facts["erlang_version"],
                "warren_version": facts["warren_version"],
            }
            for node, facts in nodes.items()
        },
        "maintenance_status": _maintenance(own, membership),
        "feature_flags": [],
        "metadata": membership,
    }


@node_command(SECTION, timeout=300.0)
@click.argument("count", type=int)
def await_online_nodes(call: Call, count: int) -> None:
    """Return when COUNT members of the cluster run."""
    if count < 1:
        raise BadArguments("Bad argument: the number of nodes must be at least 1", is_data=True)
    seconds = call.timeout or 300.0
    node = call.node_name
    call.banner(f"Will wait for at least {count} nodes to join the cluster of {node}. Timeout: {seconds:g} seconds.")
    call.ask("await_online_nodes", count=count, timeout=seconds)


@node_command(SECTION, "Removing node {member} from the cluster")
@click.option("--accept-loss", is_flag=True, help="Delete the durable queues at home there, which nobody else has.")
@click.argument("member")
def forget_cluster_node(call: Call, member: str, accept_loss: bool) -> None:
    """Remove MEMBER, which does not run, from the cluster. It comes back only with an empty data directory."""
    lost = call.ask("forget_cluster_node", node=full_name(member), accept_loss=accept_loss)
    if lost:
        call.remark(f"Deleted with it: {', '.join(lost)}")
    call.done()


COMMANDS = (cluster_status, await_online_nodes, forget_cluster_node)
