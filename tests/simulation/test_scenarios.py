"""Conversations that once ended badly, one for every bug that the simulation has found: replayed exactly, in tests/testdata/simulation/.

A file says what it pins, the plan, the order (`plain`, or that of a seed), and what everybody did and saw. With
WARREN_WRITE_SCENARIOS=1 what is seen now is written into the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warren.simulation.plan import parse_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import plainest

FILES = sorted((Path(__file__).parents[1] / "testdata" / "simulation").glob("*.txt"))


def without_times(story):
    return [line.partition(" ms  ")[2].rstrip() for line in story.splitlines()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_conversation_goes_well(file):
    head, mark, told = file.read_text().partition("\n---\n")
    lines = head.splitlines()
    [order] = [line.split()[1] for line in lines if line.startswith("order ")]
    plan = parse_plan("\n".join(line for line in lines if not line.startswith("order ")))
    outcome = run(0, plan, plainest()) if order == "plain" else run(int(order), plan)
    assert outcome.failure is None, outcome.story
    seen = without_times(outcome.story)
    if os.environ.get("WARREN_WRITE_SCENARIOS"):
        file.write_text(head + "\n---\n" + "\n".join(seen) + "\n")
    else:
        assert seen == told.splitlines()
