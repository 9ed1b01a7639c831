"""From a schedule that fails to a short one that fails in the same way.

Lines of the plan are left out, many at a time and then one by one, and what the lines say is made plainer. For each attempt the order is that of the plainest choices first,
then that of a few seeds: whatever the order, a plan that still fails is a plan that still fails. What counts as the same failure is the text without its numbers and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..runtime.sim.choosing import Chooser, DrawnChooser
from .plan import SIZES, Action, Plan, with_graves
from .schedule import Outcome, run

ORDERS = 6
"""Seeds that are tried for each shorter plan."""
ATTEMPTS = 600

Run = Callable[[int, Plan, Chooser | None], Outcome]

_PLAINER: tuple[dict[str, Any], ...] = (
    {"heartbeat": 0},
    {"has_small_files": False},
    {"credit": (400, 200)},
    {"has_store": False, "has_small_files": False},
)
_PLAIN_VALUES = {
    "count": 1,
    "expiration": 0,
    "priority": 0,
    "by": 0,
    "size": SIZES[0],
    "multiple": 0,
    "all_but": 0,
    "late": 0,
    "prefetch": 0,
    "no_ack": 0,
    "mandatory": 0,
    "both": 0,
    "for": 1,
}
_DETAILS = re.compile(r"\d+|'[^']*'|\b(?:alice|bob|carol)\b|\[.*\]")


def kind_of(failure: str | None) -> str | None:
    """What stays of a failure's text when the details are left out."""
    if failure is None:
        return None
    text = _DETAILS.sub("#", failure)
    return "lost" if text.startswith("lost") else text


def plainest() -> Chooser:
    return DrawnChooser(lambda count: 0)


def shrink(failed: Outcome, attempts: int = ATTEMPTS, run: Run = run) -> Outcome:
    """The shortest story found with that many runs; `failed` itself if there is none."""
    return _Shrinking(failed, attempts, run).best()


class _Shrinking:
    def __init__(self, failed: Outcome, attempts: int, run: Run) -> None:
        self._best = failed
        self._kind = kind_of(failed.failure)
        self._left = attempts
        self._run = run

    def best(self) -> Outcome:
        self._try(self._best.plan)  # in a plainer order
        progress = True
        while progress and self._left > 0:
            progress = self._leave_out() or self._simplify()
        return self._best

    def _try(self, plan: Plan) -> bool:
        """Whether that plan fails too, in some order; then it is the best."""
        seeds = [self._best.seed] if self._best.seed is not None else []
        for seed in [None, *seeds, *range(ORDERS)]:
            if self._left <= 0:
                return False
            self._left -= 1
            outcome = self._run(seed or 0, plan, plainest() if seed is None else None)
            if kind_of(outcome.failure) == self._kind:
                self._best = outcome
                return True
        return False

    def _leave_out(self) -> bool:
        found = False
        size = max(1, len(self._best.plan.actions) // 2)
        while size:
            at = len(self._best.plan.actions) - size
            while at >= 0:
                actions = self._best.plan.actions
                found |= self._try(self._best.plan.with_actions(actions[:at] + actions[at + size :]))
                at -= size
            size //= 2
        return found

    def _simplify(self) -> bool:
        found = False
        names = {str(action.values["queue"]) for action in self._best.plan.actions if "queue" in action.values}
        plan = self._best.plan
        used = tuple(with_graves([name for name in plan.queues if name in names] or plan.queues[:1]))
        for change in ({"queues": used}, *_PLAINER):
            simpler = replace(self._best.plan, **change)
            if simpler != self._best.plan and self._try(simpler):
                found = True
        for at in range(len(self._best.plan.actions)):
            for action in _simpler(self._best.plan.actions[at]):
                actions = self._best.plan.actions
                if self._try(self._best.plan.with_actions((*actions[:at], action, *actions[at + 1 :]))):
                    found = True
                    break
        return found


def _simpler(action: Action) -> Iterator[Action]:
    values = action.values
    for key, plain in _PLAIN_VALUES.items():
        if values.get(key, plain) != plain:
            yield Action(action.who, action.channel, action.what, {**values, key: plain}, action.then)
    less = [("which", 1)] * (action.number("which") > 1)
    less += [("count", count) for count in (action.number("count") * 2 // 3, action.number("count") - 1) if count > 1]
    for key, value in less:
        yield Action(action.who, action.channel, action.what, {**values, key: value}, action.then)
    if action.who == "machine" and action.what == "crash" and action.number("after"):
        yield Action(action.who, action.channel, action.what, {**values, "after": 0}, action.then)
    if action.then > 1:
        yield Action(action.who, action.channel, action.what, values, action.then // 2)
