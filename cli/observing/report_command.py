"""`warren report`: prints everything about a node that somebody needs to help its operator (CM-75)."""

from __future__ import annotations

import re
import shlex

import click

from ...actors.node.operations import columns as known
from ..formatters import cell, listing
from ..node_command import Call, node_command
from ..operating.status_commands import status_facts, status_sections

#: The parts about the whole node: title, operation and columns.
NODE_PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Application environment", "environment", ("key", "value", "origin")),
    ("Environment variables", "os_env", ("key", "value")),
    ("Connections", "list_connections", known.CONNECTIONS.known),
    ("Channels", "list_channels", known.CHANNELS.known),
    ("Users", "list_users", ("user", "tags")),
)

#: The parts about each virtual host.
VHOST_PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Queues", "list_queues", known.QUEUES.known),
    ("Exchanges", "list_exchanges", known.EXCHANGES.known),
    ("Bindings", "list_bindings", known.BINDINGS.known),
    ("Consumers", "list_consumers", known.CONSUMERS.known),
    ("Permissions", "list_permissions", ("user", "configure", "write", "read")),
    ("Policies", "list_policies", ("name", "pattern", "apply-to", "definition", "priority")),
    ("Operator policies", "list_operator_policies", ("name", "pattern", "apply-to", "definition", "priority")),
    ("Parameters", "list_parameters", ("component", "name", "value")),
)

#: The listing operations with an argument `columns`.
TAKES_COLUMNS = frozenset(
    ("list_connections", "list_channels", "list_queues", "list_exchanges", "list_bindings", "list_consumers")
)


#: User and password in an address. A password may have any character, so the match ends at the last @ of the address.
_LOGIN = re.compile(r"://[^\s\"]*@")


@node_command("Monitoring, observability and health checks", "Reporting server status of node {node} ...")
def report(call: Call) -> None:
    """Show the node's status, settings, connections, and everything in its virtual hosts. Secrets are blanked."""
    for title, lines in status_sections(status_facts(call), "gb"):
        _title(title)
        for text in lines or ["(none)"]:
            click.echo(text)
    _title("Command line")
    click.echo(shlex.join(call.ask("command_line_arguments")))
    for title, operation, columns in NODE_PARTS:
        _part(call, title, operation, columns)
    for vhost in [row["name"] for row in call.node.rows("list_vhosts")]:
        for title, operation, columns in VHOST_PARTS:
            _part(call, f"{title} on {vhost}", operation, columns, vhost)
    _part(call, "Global parameters", "list_global_parameters", ("name", "value"))


def _part(call: Call, title: str, operation: str, columns: tuple[str, ...], vhost: str | None = None) -> None:
    _title(title)
    arguments: dict[str, object] = {"columns": list(columns)} if operation in TAKES_COLUMNS else {}
    if vhost is not None:
        arguments["vhost"] = vhost
    for line in listing("table", columns, call.node.rows(operation, **arguments), True, False):
        # The value of a parameter may be the address of another broker, with a password.
        click.echo(_LOGIN.sub("://***@", line))


def _title(text: str) -> None:
    click.echo()
    click.secho(cell(text), bold=True)
    click.echo()
