"""docs/cli.md, followed by an operator: every command line in it runs, in order, against one server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
WARREN = Path(sys.executable).with_name("warren")

LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("warren ")
]


@pytest.mark.timeout(300)
def test_every_command_line_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "WARREN_DATA_DIR", "WARREN_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{WARREN.parent}:/usr/bin:/bin")
    server = subprocess.Popen(
        [WARREN, "start", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    )
    try:
        while "stop " not in server.stdout.readline():
            assert server.poll() is None
        assert len(LINES) > 8
        for line in LINES:
            result = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, cwd=tmp_path)
            assert (result.returncode, result.stderr) == (0, ""), line
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


def test_exit_codes_are_documented():
    """Every exit code that a command can end with has a row."""
    from warren.cli import failure

    codes = {value for name, value in vars(failure).items() if name.startswith("EX_")}
    table = PAGE.partition("| exit code |")[2].partition("\n\n")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes | {0, 130}
