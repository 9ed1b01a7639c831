"""docs/amqp.md: its programs print the output that it shows, and its table of consumer arguments is complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from warren.routing.arguments.range_read_arguments import READER_ARGUMENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "amqp.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_what_the_page_says(program):
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert promised
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd="/")
    assert result.returncode == 0, result.stderr
    # pika prints a 64-bit integer with an L after it.
    assert [re.sub(r"(\d)L\b", r"\1", line) for line in result.stdout.splitlines()] == promised


def test_every_argument_of_readers_is_documented():
    table = PAGE.partition("### Reading by number")[2].partition("**Deliveries.**")[0]
    assert set(re.findall(r"^\| `(x-warren-[a-z-]+)` \|", table, re.MULTILINE)) == set(READER_ARGUMENTS)
