"""Helpers of tests that run commands: settings, and waiting for the effect of a command."""

from __future__ import annotations

from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client, Refused

from .nodes import Node, wait_for

#: Leases are so long that a pause of a busy machine ends none. A killed process is noticed at once all the same,
#: because its host refuses connections.
PATIENT = "net_ticktime = 20.0"


def declared(node: Node, queue: str, passive: bool = False) -> None:
    """Wait until a client of the node has declared this durable queue. The client tries again when the node refuses."""

    def is_declared() -> bool:
        try:
            client = Client(node.url, timeout=30.0)
        except (OSError, AssertionError):
            return False
        try:
            client.channel().call(m.QueueDeclare(queue=queue, durable=True, passive=passive))
            return True
        except (OSError, Refused, AssertionError):
            return False
        finally:
            client.abort()

    wait_for(f"{queue!r} on {node.name}", is_declared, 60)


def await_running(command, node: Node, *expected: Node) -> None:
    """Wait until `node` lists exactly these nodes as running."""
    names = [each.name for each in expected]
    wait_for(f"{names} to run", lambda: command.json(node, "cluster_status")["running_nodes"] == names)
