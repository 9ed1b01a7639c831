"""`schema_info`: the tables of what the nodes of a cluster agree on (CM-205)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ....contracts.membership import to_membership
from ....contracts.metadata import to_metadata
from ..columns import SCHEMA
from ..registry import Operator, Rows, operation


@operation()
async def schema_info(operator: Operator, *, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """A row for each table: how many rows it has, and which of the nodes with a copy of it answer."""
    context, process = operator.context, operator.process
    chosen = SCHEMA.chosen(columns or [])
    replicas = {context.node_name}
    if context.members is not None:
        replicas |= (await process.ask(context.members, to_membership.statuses())).keys()
    sizes = {name: len(table) for name, table in context.definitions.tables.items()}
    vhosts = context.routing.vhosts()
    sizes["vhosts"] = len(vhosts)
    sizes["queues"] = sum(len(context.routing.queues(vhost)) for vhost in vhosts)
    sizes["exchanges"] = sum(len(context.routing.exchanges(vhost)) for vhost in vhosts)
    sizes["bindings"] = 0
    for vhost in vhosts:
        sizes["bindings"] += len(await process.ask(context.metadata, to_metadata.list("bindings", vhost)))
    same = {
        "storage_type": "ram_copies" if context.settings.data_dir is None else "disc_copies",
        "active_replicas": sorted(replicas),
    }
    rows: Rows = [{"name": name, "size": size, **same} for name, size in sorted(sizes.items())]
    yield [{name: row[name] for name in chosen} for row in rows]
