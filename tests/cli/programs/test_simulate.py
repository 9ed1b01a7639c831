"""The command `warren simulate`: what it prints after a failure."""

from __future__ import annotations

import logging
import shlex

import pytest
from click.testing import CliRunner

from warren.cli.programs.simulate import simulate as command
from warren.simulation.cluster import schedule as of_clusters
from warren.simulation.outcome import ScheduleOutcome


@pytest.fixture(autouse=True)
def level_of_the_log():
    """The command lowers it for the rest of its process, which here has other tests."""
    logger = logging.getLogger("warren")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("options", [["--nodes", "3"], ["--nodes", "3", "--mirrored"], ["--nodes", "3", "--plan"]])
def test_the_command_that_repeats_a_failure(options, monkeypatch, tmp_path):
    """It has all options on which the schedule depends. Without the plan another schedule ran."""
    if options[-1] == "--plan":
        path = tmp_path / "my plan"
        path.write_text("cluster nodes=3\na kill for=100\n")
        options = [*options, str(path)]
    monkeypatch.setattr(
        of_clusters, "run", lambda seed, plan, chooser=None: ScheduleOutcome(plan, seed, "it is broken", "a story", 1)
    )
    done = CliRunner().invoke(command, [*options, "--seed", "7", "--no-shrink"])
    assert done.exit_code == 1
    words = shlex.join(options)
    assert done.output.endswith(f"To repeat the failure: warren simulate {words} --seed 7 --schedules 1\n")
