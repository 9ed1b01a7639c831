"""`ScheduleOutcome`: how a schedule went, and what a plan must offer so that a failing one can be shrunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .plan import Action

P = TypeVar("P", bound="Shrinkable")


class Shrinkable(Protocol):
    """A plan that can be shrunk. Its text, `str(plan)`, describes it completely."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of the plan, in order. A plan without some of them is valid too, so shrinking may drop any."""

    def with_actions(self: P, actions: Sequence[Action]) -> P:
        """The plan with these actions."""

    def plainer(self: P) -> Iterator[P]:
        """The plan with one thing made plainer that is no action, in each way that there is."""

    def plainer_action(self, action: Action) -> Iterator[Action]:
        """The action with one value made plainer, in each way that there is."""


@dataclass(frozen=True, slots=True)
class ScheduleOutcome(Generic[P]):
    """How a schedule went.

    seed      None if a chooser decided the order
    failure   the text of the error, None if the broker kept its promises
    story     what everybody did and received, for people
    steps     how many steps the world took
    """

    plan: P
    seed: int | None
    failure: str | None
    story: str
    steps: int

    @property
    def lines(self) -> int:
        """How many lines the story has."""
        return self.story.count("\n") + 1


def story_of(told: Sequence[tuple[float, str, str]], failure: str | None) -> str:
    """The story of these lines: time, who, text. Its clock begins with the first one."""
    begin = told[0][0] if told else 0.0
    lines = [f"{(time - begin) * 1000:10.2f} ms  {who:8} {text}" for time, who, text in told]
    return "\n".join([*lines, f"{'':15}{'BROKEN':8} {failure}"] if failure else lines)
