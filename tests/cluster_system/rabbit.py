"""Nodes of RabbitMQ, on which the tests themselves are checked: a broker whose clusters have run for many years."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from .nodes import Node, Nodes, free_ports

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def rabbit_cluster(directory: Path, count: int) -> Nodes:
    """A cluster of RabbitMQ nodes on this machine, which find each other by a list. No proxies stand between them."""
    names = [f"ledger{number + 1}@localhost" for number in range(count)]
    ports = free_ports(2 * count)
    cookie = secrets.token_hex(16)
    nodes = []
    for index, name in enumerate(names):
        home = directory / name.partition("@")[0]
        home.mkdir(parents=True)
        config = home / "rabbitmq.conf"
        lines = [f"listeners.tcp.1 = 127.0.0.1:{ports[2 * index]}", "loopback_users = none"]
        if count > 1:
            lines.append("cluster_formation.peer_discovery_backend = classic_config")
            lines += [
                f"cluster_formation.classic_config.nodes.{number + 1} = {peer}" for number, peer in enumerate(names)
            ]
        config.write_text("\n".join(lines) + "\n")
        file = home / ".erlang.cookie"
        file.write_text(cookie)
        file.chmod(0o400)
        nodes.append(
            Node(
                name,
                home,
                ports[2 * index],
                [str(SERVER)],
                HOME=str(home),
                RABBITMQ_NODENAME=name,
                RABBITMQ_DIST_PORT=str(ports[2 * index + 1]),
                RABBITMQ_CONFIG_FILE=str(config.with_suffix("")),
                RABBITMQ_MNESIA_BASE=str(home / "data"),
                RABBITMQ_LOG_BASE=str(home / "logs"),
                RABBITMQ_ENABLED_PLUGINS_FILE=str(home / "enabled_plugins"),
                RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1",
            )
        )
    return Nodes(nodes)


def rabbitmqctl(node: Node, *arguments: str) -> None:
    """Run `rabbitmqctl` for a node. Raises CalledProcessError if the command fails."""
    command = [str(SERVER.with_name("rabbitmqctl")), "-n", node.name, *arguments]
    subprocess.run(command, env=node.environment, capture_output=True, timeout=300, check=True)
