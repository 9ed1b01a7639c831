"""Schedules in which Hypothesis draws every decision, so that it shrinks the order of a failing one as well."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from warren.simulation.model import invariants
from warren.simulation.model.copies import PromiseBroken
from warren.simulation.plan import CREDITS, Plan
from warren.simulation.schedule import Schedule, run
from warren.simulation.strategies import actions, drawn, plans

from .mutants.message_mutants import MUTANTS

EXAMPLES = int(os.environ.get("WARREN_DRAWN_EXAMPLES", "40"))
QUEUES = ("orders", "urgent", "news")
drawing = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


class Failed(AssertionError):
    pass


class ShortEnough(BaseException):
    """Raised when a story is short enough. It is no Exception, because Hypothesis would catch that and go on shrinking
    for long.
    """


@settings(drawing, max_examples=EXAMPLES)
@given(plan=plans(), data=st.data())
def test_plans_in_drawn_orders(plan, data):
    outcome = run(0, plan, drawn(data))
    assert outcome.failure is None, outcome.story


@pytest.mark.parametrize("name", ["redelivered_flag_lost", "prefetch_overrun"])
def test_a_planted_bug_shrinks_to_a_short_story(name):
    """Hypothesis finds a planted bug, and shrinks plan and order together to a short story."""
    stories = []

    @settings(
        drawing, max_examples=3_000, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False, print_blob=False
    )
    @given(plan=plans(longest=8, has_store=False), data=st.data())
    def look(plan, data):
        outcome = run(0, plan, drawn(data, 40))
        if outcome.failure is not None:
            stories.append(outcome)
            raise ShortEnough if outcome.lines < 30 else Failed(outcome.failure)

    with MUTANTS[name](), pytest.raises((Failed, ShortEnough)):
        look()
    assert stories[-1].lines < 30, stories[-1].story


class Node(RuleBasedStateMachine):
    """A whole node with its clients; each step of the state machine is an action of a plan."""

    @initialize(credit=st.sampled_from(CREDITS), seed=st.integers(0, 1 << 16), has_store=st.booleans())
    def begin(self, credit, seed, has_store):
        self.schedule = Schedule(Plan(has_store, QUEUES, credit, ()), seed)
        self.schedule.begin()

    @rule(action=actions(QUEUES))
    def do(self, action):
        self.schedule.perform(action)

    @invariant()
    def credit_is_conserved(self):
        if hasattr(self, "schedule") and self.schedule.node.base is not None:
            invariants.check_credit(self.schedule.node.base)

    def teardown(self):
        if hasattr(self, "schedule"):
            try:
                self.schedule.finish()
            finally:
                self.schedule.close()


@pytest.mark.hypothesis
def test_a_node_as_a_state_machine():
    run_state_machine_as_test(Node, settings=settings(drawing, max_examples=EXAMPLES, stateful_step_count=30))


def test_the_state_machine_finds_a_planted_bug():
    with MUTANTS["lost_requeue"](), pytest.raises(PromiseBroken):
        run_state_machine_as_test(
            Node, settings=settings(drawing, max_examples=500, stateful_step_count=30, phases=[Phase.generate])
        )
