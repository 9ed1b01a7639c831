"""Schedules that once broke a promise, one for each bug that the simulation has found, replayed exactly.

A file in tests/testdata/simulation/ has the bug as a comment, the plan, the order (`plain`, or that of a seed), and the
story without times. With WARREN_WRITE_SCENARIOS=1 the test writes the stories of today into the files.

Each schedule is also run a second time without access to the real world, and the traces of both runs, with every
message and byte, must be the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.sim.trace import whole_message
from warren.simulation.plan import draw_plan, parse_plan
from warren.simulation.schedule import Schedule, run
from warren.simulation.shrinking import plainest
from warren.tests.runtime.sim.sealing import no_real_world

FILES = sorted((Path(__file__).parents[1] / "testdata" / "simulation").glob("*.txt"))
SEEDS = range(40)


def without_times(story):
    return [line.partition(" ms  ")[2].rstrip() for line in story.splitlines()]


def read(file):
    """The head of the file; its plan, seed and chooser; its story."""
    head, mark, told = file.read_text().partition("\n---\n")
    lines = head.splitlines()
    [order] = [line.split()[1] for line in lines if line.startswith("order ")]
    plan = parse_plan("\n".join(line for line in lines if not line.startswith("order ")))
    return head, (plan, 0, plainest()) if order == "plain" else (plan, int(order), None), told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_schedule_that_broke_a_promise_breaks_none_now(file):
    head, (plan, seed, chooser), told = read(file)
    outcome = run(seed, plan, chooser)
    assert outcome.failure is None, outcome.story
    seen = without_times(outcome.story)
    if os.environ.get("WARREN_WRITE_SCENARIOS"):
        file.write_text(head + "\n---\n" + "\n".join(seen) + "\n")
    else:
        assert seen == told.splitlines()


def trace_of(schedule):
    """The complete trace. The directory of LMDB's files has a new name in each run, which is replaced."""
    schedule.run()
    root = schedule.node.disks.root if schedule.node.disks is not None else "no directory"
    return [repr(entry).replace(root, "ROOT") for entry in schedule.world.trace]


def check_twice(make, monkeypatch):
    first, second = make(), make()
    expected = trace_of(first)
    with no_real_world(monkeypatch):
        seen = trace_of(second)
    assert len(expected) > 50
    for one, other in zip(expected, seen):
        assert one == other
    assert len(expected) == len(seen) and first.told == second.told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_run_twice_leaves_the_same_trace(file, monkeypatch):
    check_twice(lambda: Schedule(*read(file)[1], whole_message), monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_schedule_run_twice_leaves_the_same_trace(seed, monkeypatch):
    check_twice(lambda: Schedule(draw_plan(SeedChooser(seed).below), seed, None, whole_message), monkeypatch)
