"""Partitions of clusters, systematically: each way to cut a cluster, for each time, with each way to consume (CL-117).

A *cell* is one combination. In its plans clients publish with confirms through all nodes, before, during and after the
partition, and consume. After the network is healed every confirmed message must have been consumed or be in the queue.

    partition   `random-halves`: a majority of random nodes and the others; `halves`: the first nodes and the others;
                `majorities-ring`: each node reaches a majority, and each another one; `random-node`: one node alone
    seconds     1, 10, 30
    consumer    `consuming`: deliveries; `polling`: basic.get; `mixed`: both
    group       `3-of-3`, `3-of-5`, `2-of-3`: how many replicas a queue has, and how many nodes the cluster
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.nodes import LETTERS
from warren.simulation.cluster.plan import CLIENTS, CONSUMING, NET, PUBLISHING, ClusterPlan, queue_of
from warren.simulation.plan import Action, Below

PARTITIONS = ("random-halves", "halves", "majorities-ring", "random-node")
SECONDS = (1, 10, 30)
CONSUMERS = ("consuming", "polling", "mixed")
#: How many replicas a queue has, and how many nodes the cluster has.
GROUPS = {"3-of-3": (3, 3), "3-of-5": (3, 5), "2-of-3": (2, 3)}

#: How many rounds clients work before the partition, during it and after it.
ROUNDS = (2, 8, 3)


class Cell(NamedTuple):
    """One combination; see the module."""

    partition: str
    seconds: int
    consumer: str
    group: str

    def __str__(self) -> str:
        return f"{self.partition}_{self.seconds}_{self.consumer}_{self.group}"


def cells() -> list[Cell]:
    """All cells."""
    return [Cell(*each) for each in product(PARTITIONS, SECONDS, CONSUMERS, GROUPS)]


def sample() -> list[Cell]:
    """Cells in which each pair of values of two axes occurs once or more, without the longest time."""
    return [
        Cell(partition, SECONDS[(at + other) % 2], consumer, list(GROUPS)[(at + other) % 3])
        for at, partition in enumerate(PARTITIONS)
        for other, consumer in enumerate(CONSUMERS)
    ]


def plan_of(cell: Cell, seed: int) -> ClusterPlan:
    """The plan of a cell for this seed, which draws everything that the cell leaves open."""
    below = SeedChooser(seed).below
    replicas, nodes = GROUPS[cell.group]
    letters = LETTERS[:nodes]
    queue = queue_of(letters[below(nodes)])
    before, during, after = ROUNDS
    pause = cell.seconds * 1000 // during
    actions = [*_rounds(below, cell, queue, before, 100), *_cuts(below, cell.partition, letters)]
    actions += _rounds(below, cell, queue, during, pause)
    actions += [Action(NET, 0, "heal", {}, 20), *_rounds(below, cell, queue, after, 500)]
    return ClusterPlan(letters, tuple(actions), is_mirrored=True, replicas=replicas)


def _rounds(below: Below, cell: Cell, queue: str, count: int, pause: int) -> Iterator[Action]:
    """Rounds in which each client publishes, consumes and acknowledges, with `pause` ms between two."""
    for _ in range(count):
        for client in CLIENTS:
            yield Action(client, PUBLISHING, "publish", {"queue": queue, "count": 1 + below(4), "size": 20}, below(10))
            if cell.consumer != "polling":
                yield Action(client, CONSUMING, "consume", {"queue": queue, "prefetch": 3}, below(10))
            if cell.consumer != "consuming":
                yield Action(client, CONSUMING, "get", {"queue": queue}, below(30))
            settle: dict[str, int | str] = {
                "which": below(4),
                "multiple": 1,
                "how": ("ack", "ack", "requeue")[below(3)],
            }
            yield Action(client, CONSUMING, "settle", settle, below(10))
        yield Action(NET, 0, "wait", {"for": pause}, 0)


def _cuts(below: Below, partition: str, letters: str) -> Iterator[Action]:
    """The actions that cut the network in this way, all at one moment."""
    count = len(letters)
    if partition == "majorities-ring":
        # A node reaches itself and as many of the next nodes as make a majority.
        for at, letter in enumerate(letters):
            for further in range(count // 2 + 1, count):
                yield Action(NET, 0, "mute", {"from": letters[(at + further) % count], "to": letter}, 0)
        return
    if partition == "random-node":
        yield Action(NET, 0, "isolate", {"node": letters[below(count)]}, 0)
        return
    order = list(letters)
    if partition == "random-halves":
        order = [order.pop(below(len(order))) for _ in letters]
    for one, other in product(order[: count // 2 + 1], order[count // 2 + 1 :]):
        yield Action(NET, 0, "cut", {"from": one, "to": other}, 0)
