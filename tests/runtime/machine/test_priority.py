"""The priority of a process is lowered for all of its threads, and never raised."""

import os
import subprocess
import sys

import pytest

from warren.runtime.machine.priority import lower_priority

#: Starts a thread, and then shows that it has.
TWO_THREADS = """
import sys, threading
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process():
    with subprocess.Popen(
        [sys.executable, "-c", TWO_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        started.stdout.readline()
        yield started.pid
        started.stdin.close()


def niceness(pid):
    return [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="only Linux has a priority for each thread")
def test_every_thread_gets_the_lower_priority(process):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    lower_priority(process, own + 3)
    assert niceness(process) == [own + 3] * 2
    lower_priority(process, own + 1)
    assert niceness(process) == [own + 3] * 2


def test_a_process_that_has_ended_is_passed_over():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lower_priority(ended.pid)
