"""The programs in docs/simulation.md lose an order, as the stories there show, and the corrected programs lose none."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text()
PROGRAM, SHOP, WITH_FAILURES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CORRECTED = PROGRAM.replace("        message.ack()\n", "").replace(
    "        ledger.commit(row)\n", "        ledger.commit(row)\n        message.ack()\n"
)


def run(tmp_path, program):
    (tmp_path / "test_it.py").write_text(program)
    # The plugin is named here because an older installation does not announce it, and its announced name is blocked
    # because a newer one would load it twice.
    plugins = ["--hypothesis-seed=0", "-p", "no:cacheprovider", "-p", "no:warren", "-p", "warren.pytest_plugin"]
    command = [
        sys.executable,
        "-c",
        "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))",
        "-q",
        *plugins,
        "test_it.py",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path)


def test_the_service_loses_an_order(tmp_path):
    result = run(tmp_path, PROGRAM)
    assert result.returncode == 1, result.stdout
    told = [line.strip() for line in result.stdout.splitlines()]
    assert any(re.fullmatch(r"seed \d+ breaks it:", line) for line in told)
    story = [line.partition(" ms  ")[2] for line in told if " ms  " in line]
    # The service acknowledges an order, crashes, and does not get it again. The page shows one such story.
    crashed = next(at for at, line in enumerate(story) if line.startswith("billing    crashes"))
    assert story[crashed - 1].startswith("billing    acknowledges b'")
    assert len(story) < 60  # most stories have about ten lines
    assert "an order is lost" in result.stdout


def test_the_corrected_service_loses_no_order(tmp_path):
    assert CORRECTED != PROGRAM
    result = run(tmp_path, CORRECTED.replace("nothing_is_lost)", "nothing_is_lost, schedules=50)"))
    assert result.returncode == 0, result.stdout


def test_the_shop_loses_an_order_on_failover_alone(tmp_path):
    fewer = SHOP.replace("check(no_accepted_order_is_lost)", "check(no_accepted_order_is_lost, schedules=50)")
    assert fewer != SHOP
    result = run(tmp_path, fewer)
    assert "FAILED test_it.py::test_on_three_nodes" in result.stdout, result.stdout
    assert "1 failed, 1 passed" in result.stdout
    # With the variable CI set, pytest repeats the whole failure in its summary.
    failure = result.stdout.partition("short test summary info")[0]
    told = [line.strip() for line in failure.splitlines()]
    story = [line.partition(" ms  ")[2] for line in told if " ms  " in line]
    assert any(line.startswith("shop       receives the refusal of b'") for line in story)
    assert any(re.match(r"warren@[abc]   (is killed|loses power|stands still|and warren)", line) for line in story)
    assert len(story) < 30  # the story fits on a screen; the page shows one such
    assert told.count("BROKEN     an accepted order is lost") == 1


def test_the_corrected_shop_loses_no_order(tmp_path):
    corrected = SHOP.replace('(yield order) == "lost":', '(yield order) != "confirmed":')
    assert corrected != SHOP
    fewer = corrected.replace("nodes=3", "schedules=12, nodes=3").replace("_lost)", "_lost, schedules=50)")
    result = run(tmp_path, fewer)
    assert result.returncode == 0, result.stdout


def test_failures_are_drawn_by_hypothesis(tmp_path):
    result = run(tmp_path, WITH_FAILURES.replace("max_examples=20", "max_examples=4"))
    assert result.returncode == 0, result.stdout


def test_everything_a_sim_can_do_is_documented():
    from warren.simulation.service import Sim

    public = {name for name in vars(Sim) if not name.startswith("_")} - {"close", "story"}
    assert public <= set(re.findall(r"sim\.(\w+)\(", PAGE))
