"""At its start, before it answers, `Metadata` puts into the table what the store holds, and has the queues recovered with their virtual host.

Messages may leave queues only when all the ways they could take are there, so queues hear `recovered` last (queue-and-store section 10.1). A virtual host that cannot be started
is down, with its queues stopped, and the others are not; the node says when to try again (`revive`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ...runtime.errors import ProcessDown, ProcessError
from ...store.data_dir.data_dir import DataDir
from .row_encoding import Stored

if TYPE_CHECKING:
    from .process import Metadata

log = logging.getLogger("warren.metadata")


async def recover(metadata: Metadata, directory: DataDir) -> None:
    """Raises StorageError for metadata that cannot be read."""
    routing = metadata.routing
    found = await metadata.durable.open(directory)
    await metadata.run_blocking(directory.sweep_vhosts, list(found.vhosts))
    for name in found.vhosts:
        routing.add_vhost(name)
    for exchange in found.exchanges:
        routing.put_exchange(exchange)
    metadata.queues.hold_news()
    routing.recovering.update(found.vhosts)
    for name in found.vhosts:
        await _start_vhost(metadata, name, found)
    metadata.queues.release_news()
    for vhost, binding in found.bindings:
        routing.add_binding(vhost, binding)
    for name in found.vhosts:
        _all_is_there(metadata, name)
    metadata.durable.note(*found.stale)
    _say_recovered(directory.path, found)


async def _start_vhost(metadata: Metadata, name: str, found: Stored) -> None:
    """Has its queues recovered, and puts their rows into the table."""
    rows = [row for row in found.queues if row.vhost == name]
    try:
        metadata.vhosts.supervisors[name], rows = await metadata.ask(metadata.node, ("start_vhost", name, rows))
    except ProcessError as error:
        if isinstance(error, ProcessDown) and not error.reason.is_fault:
            raise  # the node is ending
        log.error("vhost '%s' is down: %s", name, error)
        metadata.routing.set_down(name)
        rows = [replace(row, state="stopped") for row in rows]
    for row in rows:
        metadata.routing.put_queue(row)


def _all_is_there(metadata: Metadata, vhost: str) -> None:
    metadata.routing.recovering.discard(vhost)
    for row in metadata.routing.queues(vhost):
        if row.state == "running":
            metadata.send(row.address, ("recovered",))


async def revive(metadata: Metadata, name: str) -> None:
    """Try once more to start a virtual host that could not be."""
    routing, queues = metadata.routing, metadata.queues
    supervisors = metadata.vhosts.supervisors
    if not routing.has_vhost(name) or name in supervisors:
        return
    given = {row.queue_id: row for row in routing.queues(name) if row.durable}
    routing.recovering.add(name)
    try:
        supervisor, rows = await metadata.ask(
            metadata.node,
            ("start_vhost", name, [replace(row, address=None, state="running") for row in given.values()]),
        )
    except ProcessError as error:
        log.info("vhost '%s' is still down: %s", name, error)
        routing.recovering.discard(name)
        return
    supervisors[name] = supervisor
    for row in rows:
        now = routing.queue(name, row.name)
        # One that has crashed since has said so, and that is newer.
        if now is given[row.queue_id]:
            queues.put(row)
        elif now is None or now.queue_id != row.queue_id:
            metadata.send(supervisor, ("forget_queue", row.queue_id))
        elif now.state == "stopped":
            queues.put(replace(now, state="running"))
    routing.set_down(name, False)
    _all_is_there(metadata, name)
    log.info("vhost '%s' is up again, with %d queues", name, len(rows))


def _say_recovered(path: str, found: Stored) -> None:
    counts = {
        "vhost": len(found.vhosts),
        "exchange": len(found.exchanges),
        "queue": len(found.queues),
        "binding": len(found.bindings),
    }
    said = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    if said:
        log.info("recovered from '%s': %s", path, ", ".join(said))
    else:
        log.info("data directory '%s' is new", path)
