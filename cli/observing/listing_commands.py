"""The listing commands: queues, exchanges, bindings, connections, channels and consumers (CM-140 to CM-159), and the
links to other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...actors.node.operations import columns as known
from ...actors.node.operations.columns import Columns
from ..node_command import Call, node_command

F = TypeVar("F", bound=Callable[..., Any])

SECTION = "Monitoring, observability and health checks"

#: Seconds that a listing may take without --timeout.
LISTING_SECONDS = 60.0


def _column(known_columns: Columns) -> Callable[[F], F]:
    """The argument COLUMN, which a shell completes with the columns of the listing."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in known_columns.known if name.startswith(incomplete)]

    return click.argument("column", nargs=-1, shell_complete=complete)


def _list(
    call: Call, operation: str, columns: Columns, wanted: tuple[str, ...], banner: str, **arguments: object
) -> None:
    chosen = columns.chosen([name for word in wanted for name in word.split(",") if name])
    if operation == "list_queues" and call.timeout is not None:
        call.banner(f"Timeout: {call.timeout} seconds ...")  # rabbitmqctl prints this line for no other listing
    call.banner(banner)
    call.list(chosen, call.node.rows(operation, columns=list(chosen), **arguments))


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.QUEUES)
@click.option("--online", is_flag=True, help="Only queues that run.")
@click.option("--offline", is_flag=True, help="Only queues that do not run.")
@click.option("--local", is_flag=True, help="Only queues whose master is on the node that is asked.")
def list_queues(call: Call, column: tuple[str, ...], online: bool, offline: bool, local: bool) -> None:
    """List the queues of a virtual host. Each COLUMN is an info item such as name, messages, consumers or state."""
    _list(
        call,
        "list_queues",
        known.QUEUES,
        column,
        f"Listing queues for vhost {call.vhost} ...",
        vhost=call.vhost,
        online=online,
        offline=offline,
        local=local,
    )


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.UNRESPONSIVE_QUEUES)
@click.option("--local", is_flag=True, help="Only queues whose master is on the node that is asked.")
@click.option("--queue-timeout", type=float, default=15.0, help="Seconds that a queue may take to answer.")
def list_unresponsive_queues(call: Call, column: tuple[str, ...], local: bool, queue_timeout: float) -> None:
    """List the queues that run and do not answer in time. Each COLUMN is an info item."""
    _list(
        call,
        "list_unresponsive_queues",
        known.UNRESPONSIVE_QUEUES,
        column,
        f"Listing unresponsive queues for vhost {call.vhost} ...",
        vhost=call.vhost,
        local=local,
        queue_timeout=queue_timeout,
    )


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.EXCHANGES)
def list_exchanges(call: Call, column: tuple[str, ...]) -> None:
    """List the exchanges of a virtual host. Each COLUMN is an info item such as name, type or durable."""
    banner = f"Listing exchanges for vhost {call.vhost} ..."
    _list(call, "list_exchanges", known.EXCHANGES, column, banner, vhost=call.vhost)


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.BINDINGS)
def list_bindings(call: Call, column: tuple[str, ...]) -> None:
    """List the bindings of a virtual host. Each COLUMN is an info item such as source_name or routing_key."""
    banner = f"Listing bindings for vhost {call.vhost} ..."
    _list(call, "list_bindings", known.BINDINGS, column, banner, vhost=call.vhost)


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.CONNECTIONS)
def list_connections(call: Call, column: tuple[str, ...]) -> None:
    """List the connections of all virtual hosts. Each COLUMN is an info item such as pid, name, user or state."""
    _list(call, "list_connections", known.CONNECTIONS, column, "Listing connections ...")


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.CHANNELS)
def list_channels(call: Call, column: tuple[str, ...]) -> None:
    """List the channels of all connections. Each COLUMN is an info item such as name, confirm or prefetch_count."""
    _list(call, "list_channels", known.CHANNELS, column, "Listing channels ...")


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.CONSUMERS)
def list_consumers(call: Call, column: tuple[str, ...]) -> None:
    """List the consumers of a virtual host's queues. Each COLUMN is an info item such as queue_name or active."""
    banner = f"Listing consumers in vhost {call.vhost} ..."
    _list(call, "list_consumers", known.CONSUMERS, column, banner, vhost=call.vhost)


@node_command("Cluster", timeout=LISTING_SECONDS)
@_column(known.LINKS)
def links(call: Call, column: tuple[str, ...]) -> None:
    """List the lanes of the links to other nodes. Each COLUMN is an info item such as node, state or unsent."""
    _list(call, "links", known.LINKS, column, "Listing links ...")


@node_command(SECTION, timeout=LISTING_SECONDS)
@_column(known.SCHEMA)
def schema_info(call: Call, column: tuple[str, ...]) -> None:
    """List the tables of the metadata that the nodes of a cluster share. Each COLUMN is an info item: name, size."""
    _list(call, "schema_info", known.SCHEMA, column, f"Asking node {call.node_name} to report its schema...")


COMMANDS = (
    list_queues,
    list_unresponsive_queues,
    list_exchanges,
    list_bindings,
    list_connections,
    list_channels,
    list_consumers,
    links,
    schema_info,
)
