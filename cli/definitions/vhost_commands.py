"""The commands for virtual hosts (CM-105 to CM-110)."""

from __future__ import annotations

import click

from ...actors.node.operations import columns as known
from ..node_command import Call, node_command

SECTION = "Virtual hosts"


@node_command(SECTION, 'Adding vhost "{name}" ...')
@click.argument("name")
@click.option("-d", "--description", help="The purpose of the virtual host.")
@click.option("--tags", help="Tags, separated by commas.")
@click.option("--default-queue-type", help="classic, quorum or stream: the type of queues declared without one.")
def add_vhost(call: Call, name: str, description: str | None, tags: str | None, default_queue_type: str | None) -> None:
    """Create the virtual host NAME. No user gets permissions in it. Succeeds if it exists already."""
    given = None if tags is None else [tag for tag in tags.split(",") if tag]
    call.ask("add_vhost", name=name, description=description, tags=given, default_queue_type=default_queue_type)
    call.done()


@node_command(SECTION, 'Deleting vhost "{name}" ...')
@click.argument("name")
def delete_vhost(call: Call, name: str) -> None:
    """Delete the virtual host NAME with everything in it, and close its connections."""
    call.ask("delete_vhost", name=name)
    call.done()


@node_command(SECTION, timeout=60.0)
@click.argument("column", nargs=-1)
def list_vhosts(call: Call, column: tuple[str, ...]) -> None:
    """List the virtual hosts. Each COLUMN is an info item such as name, description or tags."""
    chosen = known.VHOSTS.chosen([name for word in column for name in word.split(",") if name])
    call.banner("Listing vhosts ...")
    call.list(chosen, call.node.rows("list_vhosts"))


@node_command(SECTION)
@click.argument("name")
@click.argument("tag", nargs=-1)
def set_vhost_tags(call: Call, name: str, tag: tuple[str, ...]) -> None:
    """Replace the tags of the virtual host NAME by the given TAGs."""
    call.banner(f'Setting tags for virtual host "{name}" to [{", ".join(tag)}] ...')
    call.ask("set_vhost_tags", name=name, tags=list(tag))
    call.done()


@node_command(SECTION, 'Starting tracing for vhost "{vhost}" ...')
def trace_on(call: Call) -> None:
    """Send copies of all messages of a virtual host to its exchange amq.rabbitmq.trace."""
    call.ask("trace", vhost=call.vhost, on=True)
    call.say(f"Trace enabled for vhost {call.vhost}")


@node_command(SECTION, 'Stopping tracing for vhost "{vhost}" ...')
def trace_off(call: Call) -> None:
    """Stop sending copies of messages to the exchange amq.rabbitmq.trace."""
    call.ask("trace", vhost=call.vhost, on=False)
    call.say(f"Trace disabled for vhost {call.vhost}")


@node_command(SECTION, "Trying to restart vhost '{vhost}' on node '{node}' ...", timeout=300.0)
def restart_vhost(call: Call) -> None:
    """Start a virtual host that is down because one of its processes failed."""
    is_started = call.ask("restart_vhost", name=call.vhost)
    where = f"on node '{call.node_name}'"
    call.say(
        f"Successfully restarted vhost '{call.vhost}' {where}"
        if is_started
        else f"Vhost '{call.vhost}' is already running {where}"
    )


COMMANDS = (add_vhost, delete_vhost, list_vhosts, restart_vhost, set_vhost_tags, trace_on, trace_off)
