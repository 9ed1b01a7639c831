"""Operations about what uses the node's memory."""

from __future__ import annotations

import os

from .....runtime.machine.usage import program
from .....store.data_dir.vhost_dir import INDEX
from ....contracts.resources import to_memory_monitor
from ..registry import OperationError, Operator, operation
from .listings import list_connections, list_queues

#: RabbitMQ's categories, all of which an answer has, so that dashboards for RabbitMQ find them.
CATEGORIES = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs"),
    *("queue_slave_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs"),
    *("stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins", "other_proc", "metrics"),
    *("mgmt_db", "mnesia", "quorum_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)


@operation()
async def memory_breakdown(operator: Operator) -> dict[str, int]:
    """The bytes of the node's resident memory by category (CM-72, CM-73).

    These are measured: the bodies of messages in memory (`binary`), the output that waits for sockets
    (`connection_writers`), the metadata store (`mnesia`), the indexes of message stores and of messages (`msg_index`),
    and the program's own files (`code`). `other_system` is the rest: Python does not count its other allocations by
    process.
    """
    memory = await operator.process.ask(operator.context.memory_monitor, to_memory_monitor.status())
    if memory["used"] is None:
        raise OperationError("unavailable", "the memory in use cannot be measured on this system")
    bodies = pending = 0
    for vhost in operator.context.routing.vhosts():
        async for rows in list_queues(operator, vhost=vhost, columns=["message_bytes_ram"]):
            bodies += sum(row["message_bytes_ram"] or 0 for row in rows)
    async for rows in list_connections(operator, columns=["send_pend"]):
        pending += sum(row["send_pend"] or 0 for row in rows)
    found = dict.fromkeys(CATEGORIES, 0)
    mappings = await operator.process.run_blocking(program.mappings)
    for path, size in mappings if mappings is not None else [("", memory["used"])]:
        found[_category(path)] += size
    # Bodies and output are in the heap, of which a part may be in swap space.
    found["binary"] = min(bodies, found["other_system"])
    found["connection_writers"] = min(pending, found["other_system"] - found["binary"])
    found["other_system"] -= found["binary"] + found["connection_writers"]
    return found


def _category(path: str) -> str:
    if not path.startswith("/"):
        return "other_system"
    name = os.path.basename(path)
    if name in ("data.mdb", "lock.mdb"):
        return "msg_index" if os.path.basename(os.path.dirname(path)) == INDEX else "mnesia"
    return "code"


@operation()
async def force_gc(operator: Operator) -> int:
    """Collect garbage and give free heap back to the system. Returns how many bytes that has freed (CM-56)."""
    return await operator.process.ask(operator.context.memory_monitor, to_memory_monitor.collect())
