"""Schedules find each planted bug, and its story shrinks to few lines; docs/internals/simulation.md lists the bugs."""

from __future__ import annotations

import sys
from itertools import islice

import pytest

from warren.seams import SEAMS
from warren.simulation.schedule import run
from warren.simulation.shrinking import kind_of, shrink
from warren.tests.planting import replaced

from . import deduplication_mutants, shared_body_mutants
from .message_mutants import MUTANTS

#: How many schedules a search runs at most to find a bug, from its first seed on.
MOST = 10_000
#: How many lines a shrunk story may have.
LINES = 30
#: Bugs whose stories may be longer: a run must have messages for several queues, each of which is declared and bound,
#: or two files of the message store must have enough garbage to be combined, or several messages must be in flight at
#: once, or the story would take seconds to shrink as far as others.
LONGER = {
    "ack_lost_in_the_journal": 40,
    "body_misplaced_in_garbage_collection": 60,
    "bytes_miscounted": 40,
    "destinations_of_the_first": 60,
    "double_delivery_after_channel_close": 60,
    "flushed_before_it_is_written": 40,
    "message_kept_by_a_group": 40,
    "origins_of_another_piece": 50,
    "pattern_of_any_priority": 60,
    "priority_overlooked": 60,
    "range_off_by_one": 50,
    "returns_forgotten_in_a_crash": 50,
}
#: The first seed of the search for a bug. Lower seeds do not find it, or find it with a story that stays long or takes
#: many runs to shrink.
FIRST = {
    "ack_lost_in_the_journal": 580,
    "ack_to_the_next_process": 2_800,
    "binding_before_its_commit": 5_629,
    "body_misplaced_in_garbage_collection": 102,
    "bytes_miscounted": 20,
    "confirm_before_sync": 3,
    "dead_letter_lost": 90,
    "dead_letter_taken_without_record": 951,
    "dead_letters_reversed": 99,
    "double_delivery_after_channel_close": 42,
    "expired_too_early": 72,
    "expiry_lost_on_requeue": 72,
    "flushed_before_it_is_written": 16,
    "gap_forgotten": 2_041,
    "given_up_too_late": 6_233,
    "lost_requeue": 148,
    "message_kept_by_a_group": 2_056,
    "origin_of_the_first": 6,
    "pattern_of_any_priority": 110,
    "policy_widens_limits": 320,
    "prefetch_overrun": 20,
    "priority_overlooked": 200,
    "range_off_by_one": 1_684,
    "recovered_out_of_order": 20,
    "refused_without_dead_letter": 34,
    "requeued_to_the_tail": 4,
    "return_omitted": 173,
    "returns_forgotten_in_a_crash": 57_933,
    "silent_peer_kept": 491,
    "two_single_active_consumers": 670,
}
#: How many runs a story may take to shrink.
RUNS = 250
#: How many failures may be shrunk until one has a short story. Which seeds find a bug changes with every process and
#: message that is added, and the first of them may have a story that stays long.
STORIES = 3


#: The seams in code that a simulated node runs. Those of `cluster/` have their bugs in tests/cluster, those of replicas
#: in tests/mirror, and decisions that only nodes of a cluster make in `cluster_mutants`.
OF_ONE_NODE = {
    decision
    for decision, functions in SEAMS.items()
    if not functions[0].__module__.startswith("warren.cluster.") and not decision.startswith(("cluster: ", "replica: "))
}


class ShortEnough(Exception):
    """Raised when a run fails as the first one did and its story is short enough; carries the run's outcome."""


def shrunk(found, limit):
    """The first failure during `shrink` whose story has fewer lines than `limit`, at which shrinking ends.

    To shrink every story to its end would take more time than all other tests of the simulation together.
    """

    def run_until_short(seed, plan, chooser=None):
        outcome = run(seed, plan, chooser)
        if kind_of(outcome.failure) == kind_of(found.failure) and outcome.lines < limit:
            raise ShortEnough(outcome)
        return outcome

    try:
        return shrink(found, run_until_short, RUNS)
    except ShortEnough as short:
        return short.args[0]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    limit = LONGER.get(name, LINES)
    with MUTANTS[name]():
        first = FIRST.get(name, 0)
        failures = filter(lambda outcome: outcome.failure, map(run, range(first, first + MOST)))
        found = short = None
        for found in islice(failures, STORIES):
            short = shrunk(found, limit)
            if short.lines < limit:
                break
        assert found is not None and short is not None, f"{MOST} schedules, and the bug was not found"
        again = run(short.seed, short.plan) if short.seed is not None else None
    assert kind_of(short.failure) == kind_of(found.failure)
    assert short.lines < limit, short.story
    assert again is None or again.story == short.story


def test_every_seam_has_a_bug():
    decisions = MUTANTS.decisions.union(
        shared_body_mutants.SHARED_BODY_MUTANTS.decisions,
        deduplication_mutants.DEDUPLICATION_MUTANTS.decisions,
        deduplication_mutants.MIRRORED_DEDUPLICATION_MUTANTS.decisions,
    )
    assert decisions == OF_ONE_NODE, "a seam that no bug replaces, or a bug without its seam"


def test_a_bug_whose_seam_is_gone_names_it():
    with pytest.raises(LookupError, match="no function has the seam 'which messages are forgotten'"):
        with replaced(lambda original: None, "which messages are forgotten"):
            pass


def test_a_bug_that_takes_other_arguments_than_its_seam_names_it():
    with pytest.raises(TypeError, match=r"<lambda> cannot replace MessageExpiry\.of: too many positional arguments"):
        with replaced(lambda original: None, "when a message expires"):
            pass


@pytest.mark.parametrize("decision", sorted(OF_ONE_NODE))
def test_a_seam_is_replaced_wherever_its_function_is_known(decision):
    """A bug replaces its function in every module that has imported it, and in the handlers of a class."""
    functions = SEAMS[decision]

    def known(to):
        return [
            (owner, name)
            for module in list(sys.modules.values())
            if getattr(module, "__name__", "").startswith("warren.") and ".tests." not in module.__name__
            for owner in (module, *(value for value in vars(module).values() if isinstance(value, type)))
            for name, value in list(vars(owner).items())
            if any((value.fget if isinstance(value, property) else value) is one for one in to)
        ]

    assert known(functions)
    with replaced(lambda original, *arguments: original(*arguments), decision):
        assert known(functions) == []
    assert known(functions)


def test_bugs_that_are_switched_off_leave_no_trace():
    """When all bugs were switched off, no seam is replaced any more. If one is, each bug is tried alone, to name the
    one at fault.
    """
    before = run(1).story
    for bug in MUTANTS.values():
        with bug():
            pass
    if run(1).story == before:
        return
    for name, bug in MUTANTS.items():
        with bug():
            pass
        assert run(1).story == before, name
