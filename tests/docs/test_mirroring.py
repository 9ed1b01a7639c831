"""docs/mirroring.md: its program prints the output that it shows."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mirroring.md").read_text()
PROGRAM = next(each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import warren" in each)


def test_the_program_prints_what_the_page_says():
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", PROGRAM, re.MULTILINE)
    assert promised
    # A node that stands still for a moment, because the machine is busy, must not count as lost.
    program = PROGRAM.replace("Cluster(3)", "Cluster(3, net_ticktime=20.0)")
    assert program != PROGRAM
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=500, cwd="/")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == promised
