"""docs/embedding.md: its programs print the output that it shows, and it describes every method of `Broker`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from warren import Broker
from warren.administration import Administration
from warren.messaging import Messaging

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embedding.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_what_the_page_says(program):
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert promised
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd="/")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == promised


def test_every_method_is_documented_and_nothing_else():
    methods = {**vars(Administration), **vars(Messaging), **vars(Broker)}
    public = {name for name in methods if not name.startswith("_")} - {"start", "stop", "is_running"} | {"settings"}
    assert set(re.findall(r"`broker\.(\w+)", PAGE)) == public
