"""Operations about the node as a whole: whether it runs, what it uses, and its end."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime
from pathlib import Path
from typing import Literal

from .....runtime.machine.descriptors import descriptor_limit, open_descriptors
from .....version import __version__
from ....connection.tls.certificate_dates import ends_of
from ....contracts.membership import MembershipStatus, to_membership
from ....contracts.node import to_node
from ....contracts.resources import to_alarms, to_memory_monitor
from ..registry import OperationError, Operator, Rows, operation
from .watching import log_files

#: What each member reports of itself, for `cluster_status`.
OF_MEMBER: tuple[Literal["stage", "committed", "applied", "lease"], ...] = ("stage", "committed", "applied", "lease")

#: The refusal of a node that no program waits for.
EMBEDDED = "this node is embedded in a program, which alone can stop it"

#: Seconds between two looks of `await_startup`.
STARTUP_CHECK = 0.1


@operation(while_booting=True)
async def ping(operator: Operator) -> bool:
    """Whether the node answers at all; reaching this proves it."""
    return True


@operation(while_booting=True)
async def is_booting(operator: Operator) -> bool:
    """Whether the node is still recovering its data directory."""
    return await operator.process.ask(operator.node, to_node.app_state()) == "starting"


@operation(while_booting=True)
async def await_startup(operator: Operator, *, timeout: float = 300.0) -> bool:
    """Return when the node has started."""
    deadline = operator.process.now() + timeout
    while await operator.process.ask(operator.node, to_node.app_state()) != "running":
        if operator.process.now() > deadline:
            raise OperationError("software", "Error: timed out while waiting for the node to start")
        await operator.process.sleep(STARTUP_CHECK)
    return True


@operation(while_booting=True)
async def stop(operator: Operator, *, reason: str = "stop") -> int:
    """Stop the node cleanly, and return the number of its operating-system process, which then ends."""
    if not await operator.process.ask(operator.node, to_node.request_stop(reason)):
        raise OperationError("unavailable", EMBEDDED)
    return os.getpid()


@operation(while_booting=True)
async def stop_app(operator: Operator) -> bool:
    """Stop everything that serves clients, and keep the node (CM-41).

    Returns whether it has to stop: this session then ends, and the node answers commands again when its app has
    stopped.
    """
    if await operator.process.ask(operator.node, to_node.app_state()) == "stopped":
        return False
    if not await operator.process.ask(operator.node, to_node.begin_stopped()):
        raise OperationError("unavailable", EMBEDDED)
    return True


@operation(while_booting=True)
async def start_app(operator: Operator) -> bool:
    """Start what serves clients, and return when it does (CM-40)."""
    failure = await operator.process.ask(operator.node, to_node.start_app())
    if failure:
        raise OperationError("unavailable", failure)
    return True


@operation(while_booting=True)
async def status(operator: Operator) -> dict[str, object]:
    """What `warren status` shows, under RabbitMQ's keys (CM-71)."""
    process, context, settings = operator.process, operator.context, operator.context.settings
    node = await process.ask(operator.node, to_node.status())
    memory = await process.ask(context.memory_monitor, to_memory_monitor.status())
    alarms = await process.ask(context.alarms, to_alarms.active())
    connections = await process.ask(operator.node, to_node.connections())
    vhosts = context.routing.vhosts()
    disk = node["disk"]
    cluster = None if context.members is None else await process.ask(context.members, to_membership.membership())
    state = await process.ask(operator.node, to_node.app_state())
    # The first call looks for the version of the C library in the interpreter's file, for 5 ms.
    system = await process.run_blocking(platform.platform)
    return {
        "is_running": state == "running",
        "app": state,
        "uptime": int(process.wall_clock() - node["started_at"]),
        "alarms": [{"node": context.node_name, "resource": source, "type": "resource_limit"} for source in alarms],
        "listeners": [
            {
                "node": context.node_name,
                "interface": one["host"],
                "port": one["port"],
                "protocol": "amqp/ssl" if one["tls"] else "amqp",
                "purpose": "AMQP 0-9-1 with TLS" if one["tls"] else "AMQP 0-9-1",
            }
            for one in node["listening"]
        ]
        + _cluster_listeners(context.node_name, cluster)
        + [
            {
                "node": context.node_name,
                "interface": settings.management_host or settings.host,
                "port": port,
                "protocol": protocol,
                "purpose": "Prometheus exporter API over HTTP" if "prom" in protocol else "HTTP API",
            }
            for protocol, port in node["management"].items()
        ],
        # What `cluster_status` shows of each member; RabbitMQ has no such key.
        "cluster": None if cluster is None else {key: cluster[key] for key in OF_MEMBER},
        "memory": {"total": {"rss": memory["used"]}, "strategy": "rss"},
        "vm_memory_high_watermark_limit": memory["limit"],
        "disk_free": None if disk is None else disk["free"],
        "disk_free_limit": None if disk is None else disk["limit"],
        "file_descriptors": {
            "total_limit": descriptor_limit(),
            "total_used": open_descriptors(),
            # Every descriptor may be that of a client's socket.
            "sockets_limit": descriptor_limit(),
            "sockets_used": context.sessions.count(),
        },
        "totals": {
            "virtual_host_count": len(vhosts),
            "connection_count": len(connections),
            "queue_count": sum(len(context.routing.queues(name)) for name in vhosts),
        },
        # RabbitMQ has no such key: there no process waits for a whole turn of another one.
        "longest_turns": [turn._asdict() for turn in process.longest_turns()],
        "node": context.node_name,
        "cluster_name": context.definitions.cluster_name(settings.cluster_name),
        "pid": os.getpid(),
        "os": system,
        "rabbitmq_version": "3.10.8",
        "warren_version": __version__,
        "product_name": "warren",
        "product_version": __version__,
        "erlang_version": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "data_directory": settings.data_dir or "",
        "config_files": [],
        "log_files": log_files(),
        "active_plugins": [],
        "is_under_maintenance": "maintenance" in node["holds"],
        "holds": node["holds"],
        "vm_memory_calculation_strategy": "rss",
        "vm_memory_high_watermark_setting": _watermark(memory["setting"]),
    }


@operation()
async def check_certificate_expiration(operator: Operator, *, seconds: float) -> Rows:
    """The certificates that end within this many seconds, or have ended: file and end (CM-199)."""
    settings = operator.context.settings
    limit = operator.process.wall_clock() + seconds
    expiring: Rows = []
    of_clients = () if settings.tls_port is None else (settings.tls_cert_file, settings.tls_ca_file)
    of_nodes = settings.cluster_tls_cert_file, settings.cluster_tls_ca_file
    for path in dict.fromkeys(filter(None, (*of_clients, *of_nodes))):
        try:
            ends = await operator.process.run_blocking(_ends_in, path)
        except (OSError, ValueError) as error:
            raise OperationError("unavailable", f"the certificate in '{path}' cannot be read: {error}") from None
        expiring += [{"file": path, "not_after": end.isoformat()} for end in ends if end.timestamp() <= limit]
    return expiring


def _ends_in(path: str) -> list[datetime]:
    return ends_of(Path(path).read_text("ascii", "replace"))


def _cluster_listeners(node: str, cluster: MembershipStatus | None) -> list[dict[str, object]]:
    if cluster is None:
        return []
    purpose = "inter-node communication"
    where = {"interface": cluster["host"], "port": cluster["port"]}
    return [{"node": node, **where, "protocol": "clustering", "purpose": purpose}]


def _watermark(setting: float | str) -> dict[str, object]:
    return {"relative": setting} if isinstance(setting, float) else {"absolute": setting}
