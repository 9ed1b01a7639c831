"""Conversations in which the broker once broke a promise, one for each bug that the simulation has found.

A file in tests/testdata/simulation/ describes the bug in a comment, and has the conversation, which `warren.simulation`
reads (`conversations.conversation`). With WARREN_WRITE_SCENARIOS=1 the test writes today's reports into the files.

Each conversation must have the same result in every order that it leaves open. It is also run twice, the second time
without access to the real world, and the traces of both runs, with every message and byte, must be equal.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.sim.trace import whole_message
from warren.simulation.conversations.conversation import parse_conversation
from warren.simulation.conversations.playing import Player
from warren.simulation.plan import draw_plan
from warren.simulation.schedule import Schedule
from warren.tests.runtime.sim.sealing import no_real_world

FILES = sorted((Path(__file__).parents[2] / "testdata" / "simulation").glob("*.txt"))
#: In how many orders each conversation is played. `make search` draws others.
ORDERS = 3
SEEDS = range(20)


def read(file):
    return parse_conversation(file.read_text(), file.name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_conversation_that_broke_a_promise_breaks_none_now(file):
    conversation = read(file)
    seen = conversation.with_reports(Player(conversation).play())
    if os.environ.get("WARREN_WRITE_SCENARIOS"):
        file.write_text(seen)
    else:
        assert seen == file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_conversation_goes_the_same_way_in_every_order_that_it_leaves_open(file, first_seed):
    conversation = read(file)
    for seed in range(first_seed, first_seed + ORDERS):
        assert conversation.with_reports(Player(conversation, seed).play()) == file.read_text(), f"seed {seed}"


def trace_of(schedule, play):
    """The complete trace. The name of the directory of LMDB's files is replaced, because each run has a new one."""
    play()
    root = schedule.node.disks.root if schedule.node.disks is not None else "no directory"
    return [repr(entry).replace(root, "ROOT") for entry in schedule.world.trace]


def check_twice(make, monkeypatch):
    """Run a schedule twice and compare the traces. `make` returns a new schedule, and the function that runs it."""
    (first, play_first), (second, play_second) = make(), make()
    expected = trace_of(first, play_first)
    with no_real_world(monkeypatch):
        seen = trace_of(second, play_second)
    assert len(expected) > 50
    for one, other in zip(expected, seen):
        assert one == other
    assert len(expected) == len(seen) and first.told == second.told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_conversation_played_twice_leaves_the_same_trace(file, monkeypatch):
    def make():
        player = Player(read(file), describe=whole_message)
        return player.schedule, player.play

    check_twice(make, monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_schedule_run_twice_leaves_the_same_trace(seed, monkeypatch):
    def make():
        schedule = Schedule(draw_plan(SeedChooser(seed).below), seed, None, whole_message)
        return schedule, schedule.run

    check_twice(make, monkeypatch)
