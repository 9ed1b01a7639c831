"""`check`: the search for a run in which a scenario of one's own fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .service import Sim

#: Runs after the first failure, in search of a shorter story, and the lines of a story that is short enough.
FURTHER = 100
SHORT_STORY = 12

Scenario = Callable[[Sim], Any]


class ScheduleFailed(AssertionError):
    """A scenario failed; the text is its story."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run in which an assertion failed."""

    seed: int
    error: AssertionError
    story: str

    @property
    def lines(self) -> int:
        """How many lines the story has."""
        return self.story.count("\n") + 1


def attempt(scenario: Scenario, seed: int, **options: Any) -> FailedRun | None:
    """Run `scenario(sim)` once. None if no assertion failed; other errors are raised."""
    with Sim(seed, **options) as sim:
        try:
            scenario(sim)
        except AssertionError as error:
            return FailedRun(seed, error, sim.story())
    return None


def check(scenario: Scenario, schedules: int = 200, seed: int = 0, **options: Any) -> None:
    """Run `scenario(sim)` with `schedules` seeds, beginning with `seed`; `options` are those of `Sim`.

    Raises ScheduleFailed with the shortest story found.
    """
    for number in range(seed, seed + schedules):
        found = attempt(scenario, number, **options)
        if found is None:
            continue
        shortest = found
        for other in range(number + 1, number + 1 + FURTHER):
            if shortest.lines <= SHORT_STORY:
                break
            failure = attempt(scenario, other, **options)
            if failure is not None and failure.lines < shortest.lines:
                shortest = failure
        text = str(shortest.error).partition("\n")[0] or "an assertion of the scenario"
        raise ScheduleFailed(
            f"seed {shortest.seed} breaks it:\n\n{shortest.story}\n{'':15}BROKEN     {text}\n"
        ) from shortest.error
