"""Strategies for Hypothesis: plans, single actions, and choosers that draw every decision of a world.

    @given(plan=plans(), data=st.data())
    def test_nothing_is_lost(plan, data):
        assert run(0, plan, drawn(data)).failure is None

Hypothesis then shrinks a schedule that fails, its plan and its order together. This module needs the package
`hypothesis`, which warren itself does not.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ..runtime.sim.choosing import Chooser, DrawnChooser
from .brokers import FAILURES, FAILURES_OF_ONE, Failure
from .plan import CREDITS, SHORT_TURN, TURN_MESSAGES, Action, Below, Plan, draw_action, with_dead_letter_queue
from .queue_kinds import NAMES

#: Decisions of a schedule that are drawn; all later ones are the plainest. Hypothesis would shrink these to the
#: plainest anyway, and its buffers do not hold many more.
DECISIONS = 500


def _below(draw: Any) -> Below:
    return lambda count: int(draw(st.integers(0, count - 1)))


@st.composite
def actions(draw: Any, queues: tuple[str, ...] = ("orders",), has_store: bool = True) -> Action:
    """An action of a plan."""
    return draw_action(_below(draw), queues, has_store)


@st.composite
def plans(draw: Any, longest: int = 25, has_store: bool | None = None) -> Plan:
    """A plan of up to `longest` actions; with `has_store` None, with or without a data directory."""
    with_store = draw(st.booleans()) if has_store is None else has_store
    names = draw(st.lists(st.sampled_from(list(NAMES)), min_size=1, max_size=3, unique=True))
    queues = tuple(with_dead_letter_queue(names))
    lines = tuple(draw(st.lists(actions(queues, with_store), max_size=longest)))
    return Plan(
        with_store,
        queues,
        draw(st.sampled_from(CREDITS)),
        lines,
        with_store and draw(st.booleans()),
        draw(st.integers(0, 1)),
        turn_messages=draw(st.sampled_from((TURN_MESSAGES, SHORT_TURN))),
    )


@st.composite
def failures(draw: Any, nodes: int = 3, most: int = 3, seconds: float = 10.0) -> list[Failure]:
    """Up to `most` failures of a broker of this many nodes, for `Sim.suffer`.

    Each begins within `seconds` virtual seconds, and is healed after as many at most.
    """
    kinds = FAILURES if nodes > 1 else FAILURES_OF_ONE
    times = st.floats(0.0, seconds, allow_nan=False).map(lambda time: round(time, 3))
    failure = st.builds(Failure, st.sampled_from(kinds), st.integers(0, nodes - 1), times, times)
    return list(draw(st.lists(failure, max_size=most)))


def drawn(data: Any, most: int = DECISIONS) -> Chooser:
    """A chooser that draws its first `most` decisions from the `data` of `st.data()`."""
    left = most

    def draw(count: int) -> int:
        nonlocal left
        if left <= 0:
            return 0
        left -= 1
        return int(data.draw(st.integers(0, count - 1)))

    return DrawnChooser(draw)
