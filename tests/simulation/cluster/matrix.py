"""Partitions of clusters, systematically: each way to cut a cluster, for each time, with each way to consume (CL-117).

A *cell* is one combination. In its plans clients publish with confirms through all nodes, before, during and after the
partition, and consume. After the network is healed every confirmed message must have been consumed or be in the queue.

    partition   `random-halves`: a majority of random nodes and the others; `halves`: the first nodes and the others;
                `majorities-ring`: each node reaches a majority, and each another one; `random-node`: one node alone
    seconds     1, 10, 30
    consumer    `consuming`: deliveries; `polling`: basic.get; `mixed`: both
    group       `3-of-3`, `3-of-5`, `2-of-3`: how many replicas a queue has, and how many nodes the cluster
    dead        whether clients reject messages as well, so that these become dead letters in another mirrored queue

In the cells with dead letters, clients reject messages before the partition, during it, and when all replicas are well
again. No confirmed message may be lost then: it is in its queue again, or in that of the dead letters. What is rejected
during the partition may come twice as a dead letter; the rest may not.
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

#: Milliseconds within which a rejected message has become a dead letter on all replicas, if no node fails.
DEAD_LETTER_PAUSE = 1_200

#: How many rounds clients work before the partition, during it and after it.
ROUNDS = (2, 8, 3)


class Cell(NamedTuple):
    """One combination; see the module."""

    partition: str
    seconds: int
    consumer: str
    group: str
    has_dead_letters: bool = False

    def __str__(self) -> str:
        return f"{self.partition}_{self.seconds}_{self.consumer}_{self.group}" + "_dead" * self.has_dead_letters


def cells() -> list[Cell]:
    """All cells."""
    return [Cell(*each) for each in product(PARTITIONS, SECONDS, CONSUMERS, GROUPS, (False, True))]


def sample() -> list[Cell]:
    """Cells in which each pair of values of two axes occurs once or more, without the longest time."""
    found = [
        Cell(partition, SECONDS[(at + other) % 2], consumer, list(GROUPS)[(at + other) % 3])
        for at, partition in enumerate(PARTITIONS)
        for other, consumer in enumerate(CONSUMERS)
    ]
    # The partitions, and with them all values of the other axes.
    with_dead_letters = [found[at * len(CONSUMERS) + at % len(CONSUMERS)] for at in range(len(PARTITIONS))]
    return found + [cell._replace(has_dead_letters=True) for cell in with_dead_letters]


def plan_of(cell: Cell, seed: int) -> ClusterPlan:
    """The plan of a cell for this seed, which draws everything that the cell leaves open."""
    below = SeedChooser(seed).below
    replicas, nodes = GROUPS[cell.group]
    letters = LETTERS[:nodes]
    queue = queue_of(letters[below(nodes)])
    before, during, after = ROUNDS
    pause = cell.seconds * 1000 // during
    actions = [*_rounds(below, cell, queue, before, 100)]
    if cell.has_dead_letters:
        actions.append(Action(NET, 0, "wait", {"for": DEAD_LETTER_PAUSE}, 0))
    actions += _cuts(below, cell.partition, letters)
    actions += _rounds(below, cell, queue, during, pause)
    actions.append(Action(NET, 0, "rest" if cell.has_dead_letters else "heal", {}, 20))
    actions += _rounds(below, cell, queue, after, 500)
    return ClusterPlan(
        letters, tuple(actions), is_mirrored=True, replicas=replicas, has_dead_letters=cell.has_dead_letters
    )


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
                "how": ("ack", "reject" if cell.has_dead_letters else "ack", "requeue")[below(3)],
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
