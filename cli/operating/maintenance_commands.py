"""The commands that keep clients away from a node (CM-53, CM-54, CM-65)."""

from __future__ import annotations

import click

from ..node_command import BadArguments, Call, node_command

SECTION = "Cluster"

#: The kinds of queues that `rebalance` takes, and what its banner calls them.
KINDS = {
    "all": "all replicated queues",
    "classic": "replicated (mirrored, non-exclusive) classic queues",
    "quorum": "quorum queues",
}


@node_command(
    SECTION, "Will put node {node} into maintenance mode. The node will no longer serve any client traffic!", 60.0
)
def drain(call: Call) -> None:
    """Put the node into maintenance until `revive` or its next start: no clients, new queues, masters or leadership."""
    call.ask("drain")
    call.done()


@node_command(
    SECTION, "Will put node {node} back into regular operating mode. The node will again serve client traffic.", 60.0
)
def revive(call: Call) -> None:
    """Serve clients again after `drain`."""
    call.ask("revive")
    call.done()


@node_command(
    SECTION,
    "Will suspend client connection listeners on node {node}. The node will no longer accept client connections!",
    60.0,
)
def suspend_listeners(call: Call) -> None:
    """Accept no new clients until `resume_listeners`. Those that are connected stay."""
    call.ask("suspend_listeners")
    call.done()


@node_command(
    SECTION, "Will resume client listeners on node {node}. The node will now accept client connections.", 60.0
)
def resume_listeners(call: Call) -> None:
    """Accept clients again after `suspend_listeners`."""
    call.ask("resume_listeners")
    call.done()


@node_command(SECTION)
@click.option("--vhost-pattern", metavar="REGEX", help="Only queues of virtual hosts whose names match.")
@click.option("--queue-pattern", metavar="REGEX", help="Only queues whose names match.")
@click.argument("kind")
def rebalance(call: Call, kind: str, vhost_pattern: str | None, queue_pattern: str | None) -> None:
    """Spread the masters of replicated queues evenly over the nodes, and then show how many each node leads.

    KIND is all, classic or quorum. A queue moves only to a replica that is in sync; queues without replicas stay.
    """
    if kind not in KINDS:
        raise BadArguments("Bad argument: the queue type must be one of all, classic, quorum", is_data=True)
    call.banner(f"Re-balancing leaders of {KINDS[kind]}...")
    columns = ("Node name", "Number of quorum queues", "Number of replicated classic queues")
    rows = call.ask("rebalance", kind=kind, vhost_pattern=vhost_pattern or "", queue_pattern=queue_pattern or "")
    call.list(columns, rows)


COMMANDS = (drain, revive, suspend_listeners, resume_listeners, rebalance)
