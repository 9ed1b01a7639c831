"""The commands that act on queues and connections (CM-167 to CM-170)."""

from __future__ import annotations

import click

from ..node_command import BadArguments, Call, node_command

QUEUES = "Queues"
OPERATIONS = "Operations"


@node_command(QUEUES, "Purging queue '{queue}' in vhost '{vhost}' ...")
@click.argument("queue")
def purge_queue(call: Call, queue: str) -> None:
    """Remove all ready messages from QUEUE; unacknowledged messages stay."""
    count = call.ask("purge_queue", vhost=call.vhost, name=queue)
    call.done(message_count=count)


@node_command(QUEUES)
@click.argument("queue")
@click.option("-e", "--if-empty", is_flag=True, help="Only if it has no ready messages.")
@click.option("-u", "--if-unused", is_flag=True, help="Only if it has no consumers.")
def delete_queue(call: Call, queue: str, if_empty: bool, if_unused: bool) -> None:
    """Delete QUEUE with its messages, even if it is exclusive."""
    if not queue:
        raise BadArguments("Bad argument: queue name cannot be an empty string", is_data=True)
    conditions = [text for text, on in (("queue is empty", if_empty), ("queue is unused", if_unused)) if on]
    phrase = "".join([" if " + " and if ".join(conditions) if conditions else "", " ..."])
    call.banner(f"Deleting queue '{queue}' on vhost '{call.vhost}'{phrase}")
    count = call.ask("delete_queue", vhost=call.vhost, name=queue, if_empty=if_empty, if_unused=if_unused)
    call.say(f"Queue was successfully deleted with {count} ready messages")


@node_command(OPERATIONS, "Closing connection {connection}, reason: {explanation}...")
@click.argument("connection")
@click.argument("explanation")
def close_connection(call: Call, connection: str, explanation: str) -> None:
    """Close CONNECTION, given by its pid or its name. The client receives 320 with the EXPLANATION."""
    call.ask("close_connection", connection=connection, reason=explanation)
    call.done()


@node_command(OPERATIONS)
@click.option("--global", "is_global", is_flag=True, help="Close the connections of all virtual hosts.")
@click.option("--limit", type=int, default=0, help="How many connections to close at most; 0 is no limit.")
@click.option("--per-connection-delay", type=int, default=0, help="Milliseconds between two connections.")
@click.argument("explanation")
def close_all_connections(call: Call, explanation: str, is_global: bool, limit: int, per_connection_delay: int) -> None:
    """Close the connections of a virtual host. The clients receive 320 with the EXPLANATION."""
    where = f"to node {call.node_name} (across all vhosts)" if is_global else f"in vhost {call.vhost}"
    call.banner(f"Closing all connections {where}, reason: {explanation}...")
    count = call.ask(
        "close_all_connections",
        vhost=None if is_global else call.vhost,
        reason=explanation,
        limit=limit,
        per_connection_delay=per_connection_delay,
    )
    call.say(f"Closed {count} connections")


@node_command(OPERATIONS, "Closing connections of user {username}, reason: {explanation}...")
@click.argument("username")
@click.argument("explanation")
def close_all_user_connections(call: Call, username: str, explanation: str) -> None:
    """Close the connections of USERNAME. The clients receive 320 with the EXPLANATION."""
    call.ask("close_all_user_connections", user=username, reason=explanation)
    call.done()


COMMANDS = (purge_queue, delete_queue, close_connection, close_all_connections, close_all_user_connections)
