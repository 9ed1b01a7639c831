"""What a program has used of its machine, from the files of a Linux kernel; the replacement for other systems has what
all of them count.
"""

import os
import threading

import pytest

from warren.runtime.machine.usage import DiskBytes, LinuxUsage, PortableUsage


@pytest.fixture
def proc(tmp_path):
    """A directory like /proc/self, of a program with two threads, of which the second has just ended."""
    (tmp_path / "io").write_text("rchar: 7\nread_bytes: 4096\nwrite_bytes: 8192\n")
    (tmp_path / "task" / "12").mkdir(parents=True)
    (tmp_path / "task" / "13").mkdir()
    tick = os.sysconf("SC_CLK_TCK")
    (tmp_path / "task" / "12" / "stat").write_text(f"12 (a (b)) S {'0 ' * 10}{3 * tick} {2 * tick} 0 0\n")
    (tmp_path / "smaps").write_text(
        "7f00-7f10 r--p 00000000 08:01 5 /data/a file.mdb\nSize: 64 kB\nRss: 12 kB\n"
        "7f20-7f30 rw-p 00000000 00:00 0\nRss: 4 kB\n"
    )
    return tmp_path


def test_linux_counts_it_in_files(proc):
    usage = LinuxUsage(proc)
    assert usage.disk_bytes() == DiskBytes(4096, 8192)
    assert usage.thread_seconds() == {12: 5.0}
    assert usage.mappings() == [("/data/a file.mdb", 12288), ("", 4096)]


def test_a_kernel_without_these_files_counts_nothing(tmp_path):
    usage = LinuxUsage(tmp_path)
    assert (usage.disk_bytes(), usage.thread_seconds(), usage.mappings()) == (None, None, None)


def test_the_files_of_this_program():
    usage = LinuxUsage()
    assert threading.get_native_id() in (usage.thread_seconds() or {})
    assert any(path.endswith(".so") or ".so." in path for path, _ in usage.mappings() or [])


def test_the_twin_counts_context_switches_alone():
    usage = PortableUsage()
    assert (usage.disk_bytes(), usage.thread_seconds(), usage.mappings()) == (None, None, None)
    assert 0 < usage.context_switches() <= LinuxUsage().context_switches()
