"""The commands about the replicas of mirrored queues (CL-101)."""

from __future__ import annotations

import sys
from typing import Any

import click

from ...settings.limits import shown_size
from ..node_client import full_name
from ..node_command import Call, node_command

SECTION = "Replication"

RING_COLUMNS = (
    *("queue", "type", "state", "master", "members", "learners"),
    *("view_version", "alive", "dead", "pending_messages"),
)

#: Characters of the bar that shows how far a copy is.
BAR = 20

#: Moves the cursor to the start of the line and clears the line.
CLEARED = "\r\033[K"


@node_command(SECTION, "Ring of queue '{queue}' in vhost '{vhost}' ...")
@click.argument("queue")
def show_ring(call: Call, queue: str) -> None:
    """Draw the ring of the mirrored QUEUE: its members in order, how far each one is, and who lags."""
    ring = call.ask("show_ring", vhost=call.vhost, name=queue)
    if call.is_machine:
        call.facts(ring)
        return
    for line in ring_lines(ring):
        click.echo(line)


@node_command(SECTION, "Listing rings for vhost {vhost} ...", timeout=60.0)
@click.argument("queue", required=False)
def rings(call: Call, queue: str | None) -> None:
    """List the rings of the mirrored queues of a virtual host, or that of QUEUE; show_ring draws one of them.

    ALIVE is how many replicas answer, DEAD the nodes that do not or that lack a replica, and PENDING_MESSAGES what some
    member of the ring has not stored yet.
    """
    call.list(RING_COLUMNS, call.node.rows("rings", vhost=call.vhost, name=queue))


def ring_lines(ring: dict[str, Any]) -> list[str]:
    """The ring drawn in text. Instructions of the master go down the members, and their acknowledgements go round."""
    members = [member for member in ring["members"] if member["role"] != "learner"]
    learners = [member for member in ring["members"] if member["role"] == "learner"]
    width = max(len(member["node"]) for member in ring["members"])
    lines = [f"Epoch {ring['epoch']}, under this master since epoch {ring['reign']}; the queue is {ring['state']}.", ""]
    last = len(members) - 1
    for at, member in enumerate(members):
        edge = ("   " if not last else "+->" if at == 0 else "+--" if at == last else "|  ") + " "
        lines.append(f"{edge}{member['node']:{width}}  {member['role']:7}  {_standing(member, not last)}")
        if at < last:
            lines.append("|     v")
    if learners:
        lines += ["", "Not in the ring yet, behind its last member:"]
        lines += [f"    {member['node']:{width}}  {member['role']:7}  {_standing(member)}" for member in learners]
    if ring["missing"]:
        lines += ["", f"Wanted by the policy as well: {', '.join(ring['missing'])}"]
    lines += [f"Evicted: {each['node']}: {each['reason']}" for each in ring["evicted"]]
    lines += [f"Forced to one replica by {each['by']} at epoch {each['epoch']}" for each in ring.get("forced", ())]
    return lines


def _standing(member: dict[str, Any], is_alone: bool = False) -> str:
    """How far a member is, in words."""
    if member["received"] is None:
        return "does not answer"
    count = member["messages"]
    words = [f"received {member['received']}", f"stored {member['stored']}"]
    if member["role"] == "master":
        words = [f"position {member['received']}"]
        words += [] if is_alone else [f"all others have stored {member['stored']}"]
    words.append("1 message" if count == 1 else f"{count} messages")
    if member["role"] == "learner":
        words.append(member["stage"])
        words += [] if member.get("left") is None else [f"{member['left']} left"]
        words += rate_words(member)
    lags = []
    if member["lag"]:
        lags.append(f"{member['lag']} behind the master")
    if member["unstored"]:
        lags.append(f"{member['unstored']} not stored yet")
    return ", ".join(words) + (f"  <- lags: {', '.join(lags)}" if lags else "")


@node_command(SECTION, "Synchronising queue '{queue}' in vhost '{vhost}' ...")
@click.argument("queue")
def sync_queue(call: Call, queue: str) -> None:
    """Have all replicas of the mirrored QUEUE get its messages, and return when they have them.

    The queue goes on meanwhile. An interrupt ends the command and not the copying: `cancel_sync_queue` does that.
    """
    shown = sys.stderr.isatty() and not call.is_quiet
    bars: dict[str, str] = {}
    stopped: list[str] = []
    try:
        for row in call.node.rows("sync_queue", vhost=call.vhost, name=queue):
            if row["node"] in bars:  # the rows of the next moment begin
                bars, stopped = {}, []
            bars[row["node"]] = sync_bar(row)
            stopped += [row["node"]] if row["is_stopped"] else []
            if shown:
                click.echo(f"{CLEARED}{'   '.join(bars.values())}", err=True, nl=False)
    except KeyboardInterrupt:
        click.echo(f"\nThe replicas go on. 'warren cancel_sync_queue {queue}' stops them.", err=True)
        raise
    if shown:
        click.echo(CLEARED, err=True, nl=False)
    if stopped:
        call.remark(f"Not synchronised, because an operator has stopped the copy: {', '.join(stopped)}")
    call.done()


def sync_bar(row: dict[str, Any]) -> str:
    """How far a replica is that copies a queue: a bar, and figures."""
    stage, total, left = row["stage"], row["total"], row["left"]
    if stage is None:
        return f"{row['node']} does not answer"
    has = row["messages"] if left is None or total is None else max(0, total - left)
    words = [f"{has:,} messages" if total is None else f"{has:,} of {total:,} messages", *rate_words(row)]
    if stage != "copying":
        words.insert(0, stage)
    share = 0.0 if total is None else min(1.0, has / total) if total else 1.0
    filled = round(share * BAR)
    return f"{row['node']} [{'#' * filled}{'-' * (BAR - filled)}] {share:4.0%} {', '.join(words)}"


def rate_words(row: dict[str, Any]) -> list[str]:
    """How fast a copy is, how long it takes and what it waits for, as far as that is known."""
    words = []
    if row.get("bytes_per_second"):
        words.append(f"{shown_size(row['bytes_per_second'])}/s")
    if seconds := row.get("seconds_left"):
        words.append(f"about {seconds} s" if seconds < 120 else f"about {seconds // 60} min")
    if row.get("alarms"):
        words.append(f"waits until the {' and '.join(row['alarms'])} alarm of its node is cleared")
    return words


@node_command(SECTION, "Stopping synchronising queue '{queue}' in vhost '{vhost}' ...")
@click.argument("queue")
def cancel_sync_queue(call: Call, queue: str) -> None:
    """Have the replicas of the mirrored QUEUE stop getting its messages. They wait for `sync_queue`."""
    if call.ask("cancel_sync_queue", vhost=call.vhost, name=queue):
        call.done()
    else:
        call.say("not_syncing")


@node_command(SECTION, "Making {member} the master of queue '{queue}' in vhost '{vhost}' ...")
@click.option("--force", is_flag=True, help="Make the replica on MEMBER the only one, also if it is not in sync.")
@click.option("--accept-loss", is_flag=True, help="With --force: lose the messages that the replica on MEMBER lacks.")
@click.argument("queue")
@click.argument("member")
def promote(call: Call, queue: str, member: str, force: bool, accept_loss: bool) -> None:
    """Make the replica on the node MEMBER, which must be in sync, the master of the mirrored QUEUE.

    Publishers wait for a moment. Messages that consumers have not acknowledged come again, redelivered. --force brings
    a queue back that is down because no replica in sync is left; without --accept-loss it only shows the replicas.
    """
    member = full_name(member)
    forced = {"is_forced": True, "accept_loss": accept_loss} if force else {}
    if call.ask("promote", vhost=call.vhost, name=queue, node=member, **forced):
        call.done()
    else:
        call.say(f"{member} is the master already")


COMMANDS = (rings, show_ring, sync_queue, cancel_sync_queue, promote)
