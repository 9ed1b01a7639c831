"""Measuring memory without /proc."""

from __future__ import annotations

import ctypes
import sys

import pytest

from warren.runtime.machine import portable_memory
from warren.runtime.machine.portable_memory import UNKNOWN_TOTAL, FunctionMeter, PortableMemory, physical_memory


def test_total_is_the_physical_pages(monkeypatch):
    """Without /proc, total memory is what POSIX reports: the number of pages times their size."""
    monkeypatch.setattr(portable_memory.os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert PortableMemory().total() == 4_096_000


@pytest.mark.parametrize("answer", [-1, OSError(), ValueError()])
def test_a_system_that_does_not_report_its_pages(monkeypatch, answer):
    """A system that does not report its pages is taken to have 1 GiB (queue-and-store section 1)."""

    def sysconf(name):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(portable_memory.os, "sysconf", sysconf)
    assert physical_memory() == UNKNOWN_TOTAL == 2**30


def test_macos_reports_the_physical_footprint(monkeypatch):
    """The structure has macOS's layout: 16 bytes of UUID, then ten 64-bit counters, the eighth being the footprint."""
    assert ctypes.sizeof(portable_memory._RusageInfo) == 96
    assert portable_memory._RusageInfo.physical_footprint.offset == 16 + 7 * 8

    class Library:
        def proc_pid_rusage(self, pid, flavor, info):
            info._obj.physical_footprint = 123_456
            return 0

    monkeypatch.setattr(portable_memory.ctypes, "CDLL", lambda name: Library())
    assert FunctionMeter(portable_memory._macos_footprint).anonymous() == 123_456


@pytest.mark.parametrize("library", [object(), type("Failing", (), {"proc_pid_rusage": lambda *arguments: -1})()])
def test_a_meter_that_cannot_measure_cannot_be_made(monkeypatch, library):
    """The broker then starts without a memory watermark instead of failing at its first sample."""
    monkeypatch.setattr(portable_memory.ctypes, "CDLL", lambda name: library)
    with pytest.raises(OSError):
        FunctionMeter(portable_memory._macos_footprint)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="this system reports the memory of a process")
def test_other_systems_cannot_measure():
    """On other systems the memory in use cannot be measured: the peak in ru_maxrss would keep publishers blocked for
    ever.
    """
    with pytest.raises(OSError):
        PortableMemory().meter()
    assert PortableMemory().trimmer() is None
