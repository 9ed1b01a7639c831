"""Whether a process runs: the answers of Linux, and of the replacement for other systems."""

import os
import subprocess
import sys

import pytest

from warren.runtime.machine.running import is_running, runs_on_linux, runs_on_posix

each_way = pytest.mark.parametrize("runs", [is_running, runs_on_linux, runs_on_posix])


@each_way
def test_a_process_runs_until_it_has_ended(runs):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert runs(child.pid)
    finally:
        child.communicate(b"\n")
    assert not runs(child.pid)


@each_way
def test_a_process_of_another_user_runs(runs):
    assert runs(1)


def test_a_zombie_has_ended_on_linux_alone():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (runs_on_linux(child.pid), runs_on_posix(child.pid)) == (False, True)
    child.wait()
