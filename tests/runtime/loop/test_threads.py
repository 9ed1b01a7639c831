"""The threads of a server beside its loop, which write to the disk."""

from __future__ import annotations

import subprocess
import sys

from warren.runtime.loop.threads import SWITCH_SECONDS

SERVER = """
import os, signal, sys
from warren import server
from warren.settings import Settings

def on_ready(report):
    print(sys.getswitchinterval(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

server.serve(Settings(port=0, management=False), on_ready)
"""


def test_a_busy_server_soon_hands_pythons_lock_to_its_other_threads():
    """`warren start` runs the loop in the main thread, where Python's usual 5 ms would delay each write to the disk."""
    program = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, timeout=60, cwd="/")
    assert float(program.stdout) <= SWITCH_SECONDS, program.stderr
