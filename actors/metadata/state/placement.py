"""Which nodes shall have a replica of a mirrored queue (mirrored-queues section 12).

| ha-mode | the nodes |
|---|---|
| `all` | all that run |
| `exactly` n | that of the master, and n−1 others: those that have a replica first, the oldest before younger ones |
| `nodes` [...] | those of the list that run; see `_listed` for a master that is not on the list |

Where RabbitMQ picks nodes at random, each queue has an order of the nodes of its own, which follows from the id of the
queue. So every node of the cluster chooses the same ones when it applies a command, and queues are spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

from ....definitions.policies import Definition


class Mode(NamedTuple):
    """`ha-mode` of a queue, and its `ha-params`: how many replicas, or which nodes."""

    mode: str
    replicas: int = 0
    nodes: tuple[str, ...] = ()


def policy_mode(definition: Definition) -> Mode | None:
    """The mode that a policy defines; None if it does not mirror queues."""
    mode = definition.get("ha-mode")
    if mode is None:
        return None
    if mode == "nodes":
        return Mode(mode, nodes=tuple(definition["ha-params"]))
    return Mode(mode, definition.get("ha-params", 0))


def suggested(
    wanted: Mode, queue_id: str, master: str, mirrors: Sequence[str], synced: Collection[str], running: Collection[str]
) -> tuple[str, ...]:
    """The nodes that shall have a replica, that of the master first.

    mirrors   the nodes that have another replica or are about to, the oldest first
    synced    those of them that have all messages
    running   the nodes that a replica may be on
    """
    if wanted.mode == "nodes":
        return _listed(wanted.nodes, master, mirrors, synced, running)
    there = [node for node in mirrors if node != master and node in running]
    others = sorted((node for node in running if node != master and node not in there), key=_order_of(queue_id))
    count = wanted.replicas - 1 if wanted.mode == "exactly" else len(there) + len(others)
    return master, *[*there, *others][:count]


def _listed(
    listed: Sequence[str], master: str, mirrors: Sequence[str], synced: Collection[str], running: Collection[str]
) -> tuple[str, ...]:
    """A master that is not on the list stays until a mirror has all messages, and that mirror becomes the master. If
    only mirrors that are not on the list have all messages, one of these is the master for the time being.
    """
    names = dict.fromkeys(listed if synced else sorted({*listed, master}))
    available = [node for node in names if node in running]
    if not available or master in available:
        return master, *(node for node in available if node != master)
    complete = [node for node in mirrors if node in synced]
    first = next((node for node in available if node in synced), complete[0])
    return first, *(node for node in available if node != first)


def _order_of(queue_id: str) -> Callable[[str], bytes]:
    def place(node: str) -> bytes:
        return blake2b(f"{queue_id} {node}".encode("utf-8", "surrogateescape"), digest_size=8).digest()

    return place
