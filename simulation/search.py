"""The search for a run that breaks what a program of one's own promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .service import Sim

FURTHER = 100
"""Runs after the first failure, in search of a shorter story."""

Scenario = Callable[[Sim], Any]


class ScheduleFailed(AssertionError):
    """A scenario failed; the text is its story."""


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    error: AssertionError
    story: str

    @property
    def lines(self) -> int:
        return self.story.count("\n") + 1


def attempt(scenario: Scenario, seed: int, **options: Any) -> Failure | None:
    """One run of `scenario(sim)`. Errors other than AssertionError come out as they are."""
    sim = Sim(seed, **options)
    try:
        scenario(sim)
    except AssertionError as error:
        return Failure(seed, error, sim.story())
    finally:
        sim.close()
    return None


def check(scenario: Scenario, schedules: int = 200, seed: int = 0, **options: Any) -> None:
    """Run `scenario(sim)` with so many seeds. Raises ScheduleFailed with the shortest story that is found; `options` are those of `Sim`."""
    for number in range(seed, seed + schedules):
        found = attempt(scenario, number, **options)
        if found is None:
            continue
        others = (attempt(scenario, other, **options) for other in range(number + 1, number + 1 + FURTHER))
        shortest = min([found, *(other for other in others if other is not None)], key=lambda failure: failure.lines)
        text = str(shortest.error).partition("\n")[0] or "an assertion of the scenario"
        raise ScheduleFailed(
            f"seed {shortest.seed} breaks it:\n\n{shortest.story}\n{'':15}BROKEN     {text}\n"
        ) from shortest.error
