"""docs/cli.md, followed by an operator: every command line in it runs, in order."""

import re
import subprocess
import sys
from pathlib import Path

from warren.cli import failure

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
WARREN = Path(sys.executable).with_name("warren")

LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line.strip()
]


def test_every_command_line_of_the_page_runs(tmp_path, monkeypatch):
    """Every command line of the page runs. The broker takes a free port, because 5672 may be taken."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "WARREN_DATA_DIR", "WARREN_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{WARREN.parent}:/usr/bin:/bin")

    def run(line):
        return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=500, cwd=tmp_path)

    assert len(LINES) > 15 and LINES[0] == "warren start --background" and LINES[-1] == "warren stop"
    try:
        for line in LINES:
            result = run(f"{line} --port 0" if line == LINES[0] else line)
            assert (result.returncode, result.stderr) == (0, ""), line
        assert run("warren ping").returncode == failure.EX_UNAVAILABLE
    finally:
        run("warren stop --idempotent")


def test_exit_codes_are_documented():
    """Every exit code with which a command may end has a row in the page's table."""
    codes = {value for name, value in vars(failure).items() if name.startswith("EX_")}
    table = PAGE.partition("| exit code |")[2].partition("\n\n")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes | {0, 130}
