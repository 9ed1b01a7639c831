"""The programs of docs/sharding.md run one after the other against a broker."""

import re
import subprocess
import sys
from pathlib import Path

from warren import Broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sharding.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_programs_run_and_print_what_the_page_says(tmp_path):
    with Broker(port=0) as broker:
        printed = []
        for program in PROGRAMS:
            program = program.replace("amqp://guest:guest@127.0.0.1:5672/%2F", broker.url)
            run = subprocess.run(
                [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
            )
            assert run.returncode == 0, run.stderr
            printed.append(run.stdout.splitlines())
    assert printed[:2] == [["8"], ["0"]]
    assert printed[2] == ["0 b'one lamp'", *[f"{number} b'another lamp'" for number in range(1, 1000)]]
