"""Strategies for Hypothesis: plans, single lines of plans, and choosers that draw every decision of a world, so that a schedule that fails shrinks to its few steps.

    @given(plan=plans(), data=st.data())
    def test_nothing_is_lost(plan, data):
        assert run(0, plan, drawn(data)).failure is None

Needs the package `hypothesis`, which warren itself does not.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ..runtime.sim.choosing import Chooser, DrawnChooser
from .clients.kinds import NAMES
from .plan import CREDITS, Action, Below, Plan, draw_action, with_graves

DECISIONS = 500
"""Drawn for a schedule; those after are the plainest, which Hypothesis would arrive at anyway. More would be too much for its buffers."""


def _below(draw: Any) -> Below:
    return lambda count: int(draw(st.integers(0, count - 1)))


@st.composite
def actions(draw: Any, queues: tuple[str, ...] = ("orders",), has_store: bool = True) -> Action:
    """A line of a plan."""
    return draw_action(_below(draw), queues, has_store)


@st.composite
def plans(draw: Any, longest: int = 25, has_store: bool | None = None) -> Plan:
    """A plan of up to `longest` lines; `has_store` None is either."""
    with_store = draw(st.booleans()) if has_store is None else has_store
    queues = tuple(with_graves(draw(st.lists(st.sampled_from(list(NAMES)), min_size=1, max_size=3, unique=True))))
    lines = tuple(draw(st.lists(actions(queues, with_store), max_size=longest)))
    return Plan(
        with_store,
        queues,
        draw(st.sampled_from(CREDITS)),
        lines,
        with_store and draw(st.booleans()),
        draw(st.integers(0, 1)),
    )


def drawn(data: Any, most: int = DECISIONS) -> Chooser:
    """Decides by `data` of `st.data()`."""
    left = most

    def draw(count: int) -> int:
        nonlocal left
        if left <= 0:
            return 0
        left -= 1
        return int(data.draw(st.integers(0, count - 1)))

    return DrawnChooser(draw)
