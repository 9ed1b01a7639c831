"""The commands about the cluster: who belongs to it, who runs, and who leaves it (CM-46, CM-61, CM-66, CM-67)."""

from __future__ import annotations

import sys
from typing import Any

import click

from ...actors.node.operations import columns as known
from ..failure import EX_UNAVAILABLE, CommandFailure
from ..node_client import default_data_dir, full_name
from ..node_command import BadArguments, Call, node_command
from ..observing.status_lines import alarm_lines, listener_line

SECTION = "Cluster"
FEATURES = "Feature flags"

YES = click.option("--yes", is_flag=True, help="Do not ask at a terminal.")


@node_command(SECTION, "Cluster status of node {node} ...", timeout=60.0)
def cluster_status(call: Call) -> None:
    """Show the members of the cluster, who of them runs, their versions, alarms and listeners, and who leads."""
    answer = call.ask("cluster_status")
    asked, membership, nodes = call.node_name, answer["membership"], answer["nodes"]
    own = nodes.get(asked) or next(iter(nodes.values()))
    if call.is_machine:
        call.facts({**_facts(own, membership, nodes), "feature_flags": answer["feature_flags"]})
        return
    flags = [f"Flag: {flag['name']}, state: {flag['state']}" for flag in answer["feature_flags"]]
    for title, lines in [*_sections(own, membership, nodes), ("Feature flags", flags)]:
        click.secho(title, bold=True)
        click.echo()
        for line in lines or ["(none)"]:
            click.echo(line)
        click.echo()


def _members(own: dict[str, Any], membership: dict[str, Any] | None) -> list[str]:
    listed = [] if membership is None else [member["node"] for member in membership["members"]]
    return listed or [own["node"]]


def _running(own: dict[str, Any], membership: dict[str, Any] | None) -> list[str]:
    if membership is None:
        return [own["node"]] if own["is_running"] else []
    return [member["node"] for member in membership["members"] if member["incarnation"]]


def _partitions(own: dict[str, Any], membership: dict[str, Any] | None) -> dict[str, list[str]]:
    """By the name of the asked node, the running members to which it has no link; empty if there are none."""
    members = [] if membership is None else membership["members"]
    cut_off = [member["node"] for member in members if member["incarnation"] and not member["is_linked"]]
    return {own["node"]: cut_off} if cut_off else {}


def _maintenance(own: dict[str, Any], membership: dict[str, Any] | None) -> dict[str, str]:
    members = [] if membership is None else membership["members"]
    marked = {member["node"] for member in members if member["in_maintenance"]}
    if own["is_under_maintenance"]:
        marked.add(own["node"])
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
                f"{node}: RabbitMQ {facts['rabbitmq_version']} on {facts['erlang_version']}, "
                f"warren {facts['warren_version']}"
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
    ]


def _membership_lines(node: str, membership: dict[str, Any]) -> list[str]:
    """What an operator needs first: which node leads, which ones are down, and how many more may fail."""
    voters, members = membership["voters"], {member["node"]: member for member in membership["members"]}
    # Not `incarnation`: a node that is cut off still takes the others for running, and one whose app is stopped votes.
    reached = [voter for voter in voters if members.get(voter, {}).get("is_linked")]
    lines = [
        f"Leader: {membership['leader']} (term {membership['term']})" if membership["leader"] else "Leader: (none)"
    ]
    if membership["waits_for"]:
        lines.append(f"{node} is {membership['stage']}: {membership['waits_for']}")
    elif membership["stage"] != "running":
        lines.append(f"{node} is {membership['stage']}")
    lines += [_member_line(member, member["node"] in voters) for member in membership["members"]]
    lines.append(_reserve(len(voters), len(reached)))
    if membership["short_queues"]:
        lines.append(
            f"{membership['short_queues']} queues refuse publishes that await a confirm: they have fewer replicas in "
            "sync than they need"
        )
    return lines


def _member_line(member: dict[str, Any], is_voter: bool) -> str:
    kind = member["role"] if member["role"] != "data" else ("voter" if is_voter else "learner")
    line = f"{member['node']}: {kind}, {'up' if member['incarnation'] else 'down'}, at {member['address']}"
    if member["applied"] is not None:
        behind = f", {member['lag']} entries behind" if member["lag"] else ""
        lease = f", lease for {member['lease']} ms" if member["lease"] else ", no lease"
        line += f", {member['stage']}, applied {member['applied']}{behind}{lease}"
    return f"{line} ({member['reason']})" if member["reason"] else line


def _reserve(voters: int, reached: int) -> str:
    """A sentence about how many more voters may fail while the others still are a majority."""
    more = reached - (voters // 2 + 1)
    if voters < 2:
        return "The node is the only voter: nothing is served while it is down"
    if more < 0:
        return f"{reached} of {voters} voters can be reached, which is no majority: {-more} more must be reached"
    text = f"{reached} of {voters} voters can be reached: {more} more may fail"
    if voters % 2 == 0:
        text += "; an even number of voters survives no more failures than one voter less, so add a node or a witness"
    return text


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _facts(own: dict[str, Any], membership: dict[str, Any] | None, nodes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The answer of `cluster_status` as one JSON object (CM-67)."""
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


@node_command(SECTION, "Clustering node {node} with {member}", timeout=90.0)
@click.option("--disc", is_flag=True, help="Keep the metadata on disk, as every node does.")
@click.option("--ram", is_flag=True, help="Accepted, and treated as --disc.")
@click.option("--witness", is_flag=True, help="Only vote: have neither queues nor clients.")
@click.argument("member")
def join_cluster(call: Call, member: str, disc: bool, ram: bool, witness: bool) -> None:
    """Make this node a member of the cluster of the node MEMBER. Its app must be stopped; its own data is deleted."""
    if disc and ram:
        raise BadArguments("Bad argument: --disc and --ram exclude each other", is_data=True)
    if ram:
        click.secho("Warning: every node of warren keeps the metadata on disk; --ram means --disc", err=True)
    text = call.ask("join_cluster", node=full_name(member), role="witness" if witness else None)
    if text:
        call.remark(text)
    else:
        call.await_next_run()
    call.done()


@node_command(SECTION, "Turning {node} into a {kind} node", timeout=90.0)
@click.argument("kind")
def change_cluster_node_type(call: Call, kind: str) -> None:
    """Make the node, whose app must be stopped, a node of this KIND: `witness` only votes, `disc` has queues."""
    role = {"disc": "data", "disk": "data", "ram": "data", "witness": "witness"}.get(kind)
    if role is None:
        raise BadArguments("Bad argument: the node type must be either disc or witness.", is_data=True)
    if kind == "ram":
        click.secho("Warning: every node of warren keeps the metadata on disk; ram means disc", err=True)
    call.ask("change_cluster_node_type", role=role)
    call.done()


@node_command(SECTION, "Resetting node {node} ...", timeout=300.0)
@YES
def reset(call: Call, yes: bool) -> None:
    """Take the node out of its cluster, and delete everything that it has. Its app must be stopped."""
    _reset(call, yes, force=False)


@node_command(SECTION, "Forcefully resetting node {node} ...", timeout=300.0)
@YES
def force_reset(call: Call, yes: bool) -> None:
    """Delete everything that the node has without removing it from its cluster. Its app must be stopped."""
    _reset(call, yes, force=True)


def _reset(call: Call, yes: bool, force: bool) -> None:
    place = call.ask("status")["data_directory"]
    if sys.stdin.isatty() and not yes:
        click.echo(f"All metadata, queues and messages of {call.node_name} are deleted, in '{place}'.", err=True)
        if click.prompt("Write 'accept' to go on", default="", show_default=False, err=True) != "accept":
            raise CommandFailure("nothing was changed", EX_UNAVAILABLE)
    call.ask("reset", force=force)
    call.await_next_run()
    call.done()


@node_command(SECTION, timeout=60.0)
@click.argument("member")
def update_cluster_nodes(call: Call, member: str) -> None:
    """Accepted for RabbitMQ's scripts: a member learns of all others by itself, so MEMBER is not asked."""
    call.banner(f"Node {call.node_name} learns of the members of its cluster by itself; {member} is not asked")
    call.ask("ping")
    call.done()


@node_command(SECTION)
@click.argument("names", nargs=-1)
def rename_cluster_node(call: Call, names: tuple[str, ...]) -> None:
    """Always fail, because nodes keep their names. The error text describes how to replace a node; the NAMES are
    ignored.
    """
    raise CommandFailure(
        "a node cannot be renamed. Start a node with the new name and join it to the cluster with"
        " `warren join_cluster`. Move the clients there, consume what the queues of the old node have, and remove the"
        " old node with `warren forget_cluster_node`",
        EX_UNAVAILABLE,
    )


@node_command(SECTION, "Removing node {member} from the cluster")
@click.option("--accept-loss", is_flag=True, help="Delete the durable queues whose only copy is on MEMBER.")
@click.option(
    "--offline", is_flag=True, help="This node is stopped, and MEMBER, the only other member, is lost for ever."
)
@click.argument("member")
def forget_cluster_node(call: Call, member: str, accept_loss: bool, offline: bool) -> None:
    """Remove MEMBER, which does not run, from the cluster. It comes back only with an empty data directory."""
    if offline:
        from .force_boot_command import make_only_voter

        target = call.target
        path = target.data_dir or str(default_data_dir(target.node, "use --data-dir DIR"))
        make_only_voter(target.node, path, accept_loss, full_name(member))
        return
    lost = call.ask("forget_cluster_node", node=full_name(member), accept_loss=accept_loss)
    if lost:
        call.remark(f"Deleted with it: {', '.join(lost)}")
    call.done()


@node_command(FEATURES, timeout=60.0)
@click.argument("column", nargs=-1)
def list_feature_flags(call: Call, column: tuple[str, ...]) -> None:
    """List the feature flags. Each COLUMN is name, state, stability, provided_by, desc or doc_url."""
    chosen = known.FEATURE_FLAGS.chosen([name for word in column for name in word.split(",") if name])
    call.banner("Listing feature flags ...")
    call.list(chosen, call.node.rows("list_feature_flags", columns=list(chosen)))


@node_command(FEATURES)
@click.argument("feature_flag")
def enable_feature_flag(call: Call, feature_flag: str) -> None:
    """Enable FEATURE_FLAG, or all, in the whole cluster for ever. All nodes must run a version that supports it."""
    what = "all feature flags" if feature_flag == "all" else f'feature flag "{feature_flag}"'
    call.banner(f"Enabling {what} ...")
    call.ask("enable_feature_flag", name=feature_flag)
    call.done()


COMMANDS = (
    cluster_status,
    await_online_nodes,
    join_cluster,
    forget_cluster_node,
    change_cluster_node_type,
    reset,
    force_reset,
    update_cluster_nodes,
    rename_cluster_node,
    list_feature_flags,
    enable_feature_flag,
)
