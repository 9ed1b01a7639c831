"""Operations on virtual hosts."""

from __future__ import annotations

import logging
from dataclasses import replace

from .....definitions.records import Permission, Record, VhostProperties
from ....contracts.metadata import to_metadata
from ....metadata.state.commands import PutRecords
from ..registry import OperationError, Operator, Rows, check_vhost, operation
from .changing import change, checked_default_type, refusals

log = logging.getLogger("warren.node")

#: Bytes of UTF-8 that a short string has at most.
SHORTSTR_MAX = 255


@operation()
async def add_vhost(
    operator: Operator,
    *,
    name: str,
    description: str | None = None,
    tags: list[str] | None = None,
    default_queue_type: str | None = None,
    granted_to: str | None = None,
) -> None:
    """Create a virtual host; an existing one is success, and gets the description, the tags and the default queue type
    that are given (CM-105).

    granted_to   the user who gets all permissions in it; the command `add_vhost` gives them to nobody
    """
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= SHORTSTR_MAX:
        raise OperationError(
            "data",
            f"a virtual host's name has 1 to {SHORTSTR_MAX} bytes of UTF-8, because a client can open no other; "
            f"this one has {len(name)} characters",
        )
    with refusals():
        default = None if default_queue_type is None else checked_default_type(default_queue_type)
    await operator.process.ask(operator.context.metadata, to_metadata.create_vhost(name))
    records: list[Record] = []
    if description is not None or tags is not None or default is not None:
        old = operator.context.definitions.vhost_properties(name)
        records.append(
            VhostProperties(
                name,
                old.description if description is None else description,
                old.tags if tags is None else tuple(tags),
                old.default_queue_type if default is None else default,
            )
        )
    if granted_to is not None and operator.context.definitions.permission(granted_to, name) is None:
        records.append(Permission(granted_to, name, ".*", ".*", ".*"))
    if records:
        await change(operator, PutRecords(tuple(records)))


@operation()
async def set_vhost_tags(operator: Operator, *, name: str, tags: list[str]) -> None:
    """Replace the tags of a virtual host (CM-108)."""
    check_vhost(operator, name)
    old = operator.context.definitions.vhost_properties(name)
    await change(operator, PutRecords((replace(old, tags=tuple(tags)),)))


@operation()
async def list_vhosts(operator: Operator) -> Rows:
    """All virtual hosts (CM-107)."""
    rows: Rows = []
    for name in operator.context.routing.vhosts():
        found = operator.context.definitions.vhost_properties(name)
        rows.append(
            {
                "name": name,
                "description": found.description,
                "tags": list(found.tags),
                "default_queue_type": found.default_queue_type or None,
                "tracing": name in operator.context.routing.traced,
                "cluster_state": {
                    operator.context.node_name: "stopped" if name in operator.context.routing.down else "running"
                },
            }
        )
    return rows


@operation()
async def restart_vhost(operator: Operator, *, name: str) -> bool:
    """Start a virtual host that is down (CM-109). Returns False if it runs already."""
    routing = operator.context.routing
    if not routing.has_vhost(name):
        raise OperationError("software", f"Failed to start vhost '{name}'. Reason: {{:no_such_vhost, \"{name}\"}}")
    if name not in routing.down:
        return False
    await operator.process.ask(operator.context.metadata, to_metadata.revive_vhost(name))
    if name in routing.down:
        raise OperationError(
            "software",
            f"Failed to start vhost '{name}'. The log has the reason. The node tries again by itself, with growing "
            "pauses",
        )
    return True


@operation()
async def delete_vhost(operator: Operator, *, name: str) -> None:
    """Delete a virtual host with all that is in it, and close its connections."""
    if not await operator.process.ask(operator.context.metadata, to_metadata.delete_vhost(name)):
        raise OperationError("data", f"Virtual host '{name}' does not exist")
    log.info("vhost '%s' is deleted", name)
