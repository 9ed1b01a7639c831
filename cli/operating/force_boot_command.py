"""`warren force_boot`: makes a stopped node the only voter of its cluster (CM-52)."""

from __future__ import annotations

import os

import click

from ...settings import Settings
from ..failure import EX_TEMPFAIL, EX_UNAVAILABLE, CommandFailure
from ..node_client import default_data_dir, full_name

#: How many lost queues are printed by name; of the others only the number is printed.
SHOWN_MOST = 20


@click.command("force_boot")
@click.option("-n", "--node", help="Name of the node.  [default: warren@localhost]")
@click.option("--data-dir", metavar="DIR", help="Data directory of the node.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def force_boot(node: str | None, data_dir: str | None, yes: bool) -> None:
    """Make a stopped node the only voter of its cluster, when a majority of the members is lost for ever.

    The node then waits for no other member at its next start, and removes all of them. Changes of the metadata that
    only they have, and the messages of queues whose replicas are all on them, are lost. A member that was not lost
    after all cannot return with its data directory, which must be emptied first.

    Exit codes: 0 if it was done, 69 if the node is no member of a cluster or the operator does not agree, 75 if the
    node runs.
    """
    name = full_name(node or os.environ.get("WARREN_NODENAME") or Settings().node_name)
    path = data_dir or os.environ.get("WARREN_DATA_DIR") or str(default_data_dir(name, "use --data-dir DIR"))
    make_only_voter(name, path, yes)


def make_only_voter(name: str, path: str, yes: bool, forgotten: str | None = None) -> None:
    """Make the stopped node of this data directory the only voter, if the operator agrees. Raises CommandFailure.

    With `forgotten`, only if that node is the only other member.
    """
    # These imports are here because `--help` does not need them.
    from ...cluster.membership.force_boot import ForceBootError, outlook
    from ...cluster.membership.force_boot import force_boot as perform
    from ...store.data_dir.data_dir import DataDirError, claim

    if not os.path.isdir(path):
        raise CommandFailure(
            f"'{path}' does not exist; --data-dir names the data directory of the node", EX_UNAVAILABLE
        )
    try:
        held = claim(path, name)
    except DataDirError as error:
        raise CommandFailure(str(error), EX_TEMPFAIL) from error
    try:
        seen = outlook(path)
        if forgotten is not None:
            _check_only_other(forgotten, seen.others)
        click.echo(f"Forcing node {seen.node} to boot without the other members of its cluster")
        click.echo(f"It has the metadata up to entry {seen.applied} of the log, and entries up to {seen.last}.")
        click.echo(f"These members are removed: {', '.join(seen.others) or '(none)'}")
        click.echo("Changes of the metadata that only they have are lost.")
        if seen.queues:
            shown = ", ".join(f"'{queue}' in vhost '{vhost}'" for vhost, queue in seen.queues[:SHOWN_MOST])
            more = len(seen.queues) - SHOWN_MOST
            click.echo(f"These queues are deleted: {shown}{f' and {more} more' if more > 0 else ''}")
        if not yes and click.prompt("Write 'accept' to go on", default="", show_default=False) != "accept":
            raise CommandFailure("nothing was changed", EX_UNAVAILABLE)
        perform(path, seen.node, os.urandom(16).hex())
    except ForceBootError as error:
        raise CommandFailure(str(error), EX_UNAVAILABLE) from error
    finally:
        held.release()
    click.echo(f"{seen.node} waits for nobody at its next start")


def _check_only_other(forgotten: str, others: list[str]) -> None:
    """Raise CommandFailure unless `forgotten` is the only other member: the rest might still decide by majority."""
    if forgotten not in others:
        raise CommandFailure("{:not_a_cluster_node, 'The node selected is not in the cluster.'}", EX_UNAVAILABLE)
    rest = [name for name in others if name != forgotten]
    if rest:
        raise CommandFailure(
            f"{', '.join(rest)} would remain besides this node, and one node alone may not decide for them. Start a"
            f" majority of the members, and use `warren forget_cluster_node {forgotten}` there without --offline. If"
            " the others are lost as well, use `warren force_boot`",
            EX_UNAVAILABLE,
        )
