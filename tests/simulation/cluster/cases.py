"""Cases: plans of clusters, each named after what happens in it (CL-116, CL-118).

tests/testdata/clusters has them, each under a line `== name`, with a sentence that says what happens, a line `logged:`
with a pattern, and a plan (`simulation/cluster/plan.py`), in which these may be used as well:

    work 3 pause=200      three rounds in which each client publishes, consumes and settles, and 200 ms after each round
    {1..40}               a number that the seed draws
    {kill|power-cut}      one of these, drawn by the seed

A line that matches the pattern must be in the log of at least one of the schedules. Without that a case could pass
although the thing it is named after never happens in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.plan import CLIENTS, CONSUMING, NET, PUBLISHING, ClusterPlan, parse_cluster_plan
from warren.simulation.plan import Action, Below, parse_values

FOLDER = Path(__file__).parent.parent.parent / "testdata" / "clusters"

_NUMBER = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")


class Case(NamedTuple):
    """A case: its name, the pattern of the log, and the lines of its plan."""

    name: str
    situation: str
    logged: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def cases() -> list[Case]:
    """All cases."""
    return [case for path in sorted(FOLDER.glob("*.txt")) for case in _read(path)]


def _read(path: Path) -> Iterator[Case]:
    _, *sections = path.read_text().split("\n== ")
    for section in sections:
        name, situation, logged, *lines = section.strip().splitlines()
        if not logged.startswith("logged: "):
            raise ValueError(f"{path.name}: the third line of case {name} is not `logged: PATTERN`")
        yield Case(name, situation, logged.removeprefix("logged: "), tuple(lines))


def plan_of(case: Case, seed: int) -> ClusterPlan:
    """The plan of a case for this seed, which draws everything that the case leaves open."""
    below = SeedChooser(seed).below
    lines = [line for text in case.lines for line in _expanded(text, below)]
    return parse_cluster_plan("\n".join(lines))


def _expanded(line: str, below: Below) -> Iterator[str]:
    line = _CHOICE.sub(lambda found: _one_of(found[1].split("|"), below), line)
    line = _NUMBER.sub(lambda found: str(int(found[1]) + below(int(found[2]) - int(found[1]) + 1)), line)
    first, *words = line.split()
    if first != "work":
        yield line
        return
    pause = parse_values(words[1:], line).get("pause", 0)
    for _ in range(int(words[0])):
        yield from map(str, _round(below))
        yield f"{NET} wait for={pause}"


def _one_of(choices: list[str], below: Below) -> str:
    return choices[below(len(choices))]


def _round(below: Below) -> Iterator[Action]:
    for client in CLIENTS:
        size = (20, 400, 4_200)[below(3)]
        publish: dict[str, int | str] = {"queue": "a.orders", "count": 1 + below(4), "size": size}
        settle: dict[str, int | str] = {
            "which": below(4),
            "multiple": below(2),
            "how": ("ack", "ack", "requeue")[below(3)],
        }
        yield Action(client, PUBLISHING, "publish", publish, below(12))
        yield Action(client, CONSUMING, "consume", {"queue": "a.orders", "prefetch": (3, 10)[below(2)]}, below(12))
        yield Action(client, CONSUMING, "settle", settle, below(12))
