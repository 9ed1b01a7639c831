"""Time slices, which Linux has since 6.12."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from warren.portable import IS_PORTABLE
from warren.runtime.machine.priority import lower_priority
from warren.runtime.machine.time_slice import LONG, SHORT, USUAL, set_time_slice


def slice_of(thread: int) -> int:
    """Nanoseconds of the slice of a thread, as the kernel shows it."""
    found = re.search(r"^se\.slice\s*:\s*(\d+)", Path(f"/proc/{thread}/sched").read_text(), re.M)
    if found is None:
        pytest.skip("this kernel does not show time slices")
    return int(found[1])


@pytest.fixture
def usual() -> int:
    """The slice of a thread that has none of its own."""
    if IS_PORTABLE:
        pytest.skip("the twin for other systems leaves slices alone")
    if not Path("/proc/self/sched").exists() or tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.skip("this system has no time slices of a thread's own")
    return slice_of(os.getpid())


def test_a_thread_has_the_slice_that_it_is_given(usual):
    found = []

    def take():
        own = threading.get_native_id()
        for wanted in (SHORT, LONG, USUAL):
            assert set_time_slice(0, wanted)
            found.append(slice_of(own))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert found == [SHORT, LONG, usual]


def test_processes_with_a_lower_priority_have_long_slices(usual):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        lower_priority(process.pid, own + 2)
        assert slice_of(process.pid) == LONG
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == own + 2
        assert set_time_slice(process.pid, SHORT)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == own + 2, "a slice changes no niceness"


def test_a_thread_that_does_not_exist_gets_none():
    assert not set_time_slice(2**22, SHORT)
