"""How many descriptors a program may have. Each test runs in a process of its own, whose limit it changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

PROGRAM = """
import resource, sys
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from warren.runtime.machine.descriptors import descriptor_limit, open_descriptors, raise_descriptor_limit
raise_descriptor_limit(wanted)
print(descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard, 3 <= open_descriptors() < 100)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "limit"),
    [(256, 512, 400, 400), (256, 512, 65_536, 512), (400, 512, 300, 400), (512, 512, 65_536, 512)],
)
def test_a_server_asks_for_more_descriptors(soft, hard, wanted, limit):
    arguments = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(wanted)]
    ran = subprocess.run(arguments, capture_output=True, text=True, cwd="/", check=True)
    assert ran.stdout.split()[:2] == [str(limit), "True"]
    if sys.platform == "linux":
        assert ran.stdout.split()[2] == "True"
