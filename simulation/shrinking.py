"""From a schedule that fails to a short one that fails in the same way.

Actions of the plan are left out, many at a time and then one by one, and the values of the rest are made plainer. Each
shorter plan is tried in the plainest order first, then in the orders of a few seeds: the order need not stay the same,
since a plan that fails in any order shows the fault. Two failures count as the same if their texts agree without
numbers and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..runtime.sim.choosing import Chooser, DrawnChooser
from .plan import CLIENTS, SIZES, TURN_MESSAGES, Action, Plan, with_dead_letter_queue
from .schedule import Outcome, run

#: Seeds that are tried for each shorter plan.
ORDERS = 6
#: Runs that `shrink` makes at most.
ATTEMPTS = 600

Run = Callable[[int, Plan, Chooser | None], Outcome]

_PLAIN_NODES: tuple[dict[str, Any], ...] = (
    {"heartbeat": 0},
    {"has_differing_messages": False},
    {"has_small_files": False},
    {"credit": (400, 200)},
    {"turn_messages": TURN_MESSAGES},
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
_DETAILS = re.compile(rf"\d+|'[^']*'|\b(?:{'|'.join(CLIENTS)})\b|\[.*\]")


def kind_of(failure: str | None) -> str | None:
    """The text of a failure without its details."""
    if failure is None:
        return None
    text = _DETAILS.sub("#", failure)
    return "lost" if text.startswith("lost") else text


def plainest() -> Chooser:
    """The chooser that always takes the plainest choice."""
    return DrawnChooser(lambda count: 0)


def shrink(failed: Outcome, attempts: int = ATTEMPTS, run: Run = run) -> Outcome:
    """The shortest failure found with that many runs; `failed` itself if there is no shorter one."""
    return _Shrinking(failed, attempts, run).best()


class _Shrinking:
    def __init__(self, failed: Outcome, attempts: int, run: Run) -> None:
        self._best = failed
        self._kind = kind_of(failed.failure)
        self._left = attempts
        self._run = run

    def best(self) -> Outcome:
        self._try(self._best.plan)  # the same plan in a plainer order
        progress = True
        while progress and self._left > 0:
            progress = self._leave_out() or self._simplify()
        return self._best

    def _try(self, plan: Plan) -> bool:
        """Whether that plan fails in the same way in some order. If so it becomes the best one."""
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
        """Leave out actions: half of them at a time, then ever fewer. Whether any attempt failed in the same way."""
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
        """Make the node and the values of actions plainer. Whether any attempt failed in the same way."""
        found = False
        names = {str(action.values["queue"]) for action in self._best.plan.actions if "queue" in action.values}
        plan = self._best.plan
        used = tuple(with_dead_letter_queue([name for name in plan.queues if name in names] or plan.queues[:1]))
        for change in ({"queues": used}, *_PLAIN_NODES):
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
    """The action with one value made plainer, in each way that there is."""
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
