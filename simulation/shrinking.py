"""From a schedule that fails to a short one that fails in the same way.

Actions of the plan are left out, many at a time and then one by one, and the values of the rest are made plainer. Each
shorter plan is tried in the plainest order first, then in the orders of a few seeds: the order need not stay the same,
since a plan that fails in any order shows the fault. Two failures count as the same if their texts agree without
numbers and names. A plan that did not fail in an order is not run in that order again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic

from ..runtime.sim.choosing import Chooser, DrawnChooser
from .outcome import P, ScheduleOutcome
from .plan import CLIENTS

#: Seeds that are tried for each shorter plan.
ORDERS = 6
#: Runs that `shrink` makes at most.
ATTEMPTS = 600

#: Runs a plan in the order of a seed or of a chooser.
Run = Callable[[int, P, "Chooser | None"], ScheduleOutcome[P]]

_DETAILS = re.compile(rf"\d+|'[^']*'|\b(?:{'|'.join(CLIENTS)})\b|\[.*\]|\bwarren@\w|\b\w\.orders\b")


def kind_of(failure: str | None) -> str | None:
    """The text of a failure without its details."""
    if failure is None:
        return None
    text = _DETAILS.sub("#", failure)
    return "lost" if text.startswith("lost") else text


def plainest() -> Chooser:
    """The chooser that always takes the plainest choice."""
    return DrawnChooser(lambda count: 0)


def shrink(failed: ScheduleOutcome[P], run: Run[P], attempts: int = ATTEMPTS) -> ScheduleOutcome[P]:
    """The shortest failure found with that many calls of `run`; `failed` itself if there is no shorter one."""
    return _Shrinking(failed, attempts, run).best()


class _Shrinking(Generic[P]):
    def __init__(self, failed: ScheduleOutcome[P], attempts: int, run: Run[P]) -> None:
        self._best = failed
        self._kind = kind_of(failed.failure)
        self._left = attempts
        self._run = run
        #: The texts of the plans, each with its order (a seed, or None for the plainest), that did not fail so.
        self._futile: set[tuple[str, int | None]] = set()

    def best(self) -> ScheduleOutcome[P]:
        self._try(self._best.plan)  # the same plan in a plainer order
        progress = True
        while progress and self._left > 0:
            progress = self._leave_out() or self._simplify()
        return self._best

    def _try(self, plan: P) -> bool:
        """Whether that plan fails in the same way in some order. If so it becomes the best one."""
        seeds = [self._best.seed] if self._best.seed is not None else []
        text = str(plan)
        for seed in [None, *seeds, *range(ORDERS)]:
            if (text, seed) in self._futile:
                continue
            if self._left <= 0:
                return False
            self._left -= 1
            outcome = self._run(seed or 0, plan, plainest() if seed is None else None)
            if kind_of(outcome.failure) == self._kind:
                self._best = outcome
                return True
            self._futile.add((text, seed))
        return False

    def _leave_out(self) -> bool:
        """Leave out actions: half of them at a time, then ever fewer. Return whether any shorter plan failed in the
        same way.
        """
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
        """Make the node or cluster of the plan and the values of its actions plainer. Return whether any plainer plan
        failed in the same way.
        """
        found = False
        progress = True
        while progress and self._left > 0:
            progress = any(self._try(plan) for plan in self._best.plan.plainer())
            found |= progress
        for at in range(len(self._best.plan.actions)):
            for action in self._best.plan.plainer_action(self._best.plan.actions[at]):
                actions = self._best.plan.actions
                if self._try(self._best.plan.with_actions((*actions[:at], action, *actions[at + 1 :]))):
                    found = True
                    break
        return found
