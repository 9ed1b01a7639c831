"""The commands that look into one quorum queue: `peek` and `reclaim_quorum_memory` (CM-173)."""

from __future__ import annotations

import click

from ..formatters import cell, dumped
from ..node_command import BadArguments, Call, node_command

SECTION = "Queues"


@node_command(SECTION, timeout=60.0)
@click.argument("queue")
@click.argument("position")
def peek(call: Call, queue: str, position: str) -> None:
    """Show the ready message of the quorum QUEUE at POSITION, where 1 is the next one. It stays in the queue."""
    if not position.isdecimal() or int(position) < 1:
        raise BadArguments("position value must be a positive integer")
    call.banner(f"Peeking at quorum queue {queue} at position {position} on node {call.node_name} ...")
    message = call.ask("peek", vhost=call.vhost, name=queue, position=int(position))
    if call.is_machine:
        click.echo(dumped({"result": "ok", "message": message}))
    else:
        call.list(("keys", "values"), [{"keys": key, "values": cell(value)} for key, value in message.items()])


@node_command(SECTION, "Will flush Raft WAL of quorum queue {queue} ...", timeout=60.0)
@click.argument("queue")
def reclaim_quorum_memory(call: Call, queue: str) -> None:
    """Have the quorum QUEUE move messages from memory to disk."""
    call.ask("reclaim_quorum_memory", vhost=call.vhost, name=queue)
    call.done()


COMMANDS = (peek, reclaim_quorum_memory)
