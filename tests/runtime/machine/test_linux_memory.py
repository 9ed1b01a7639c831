"""Measuring memory on Linux: of this machine and process, and from /proc folders made for the test."""

from __future__ import annotations

import mmap
import os

import pytest

from warren.runtime.machine import linux_memory
from warren.runtime.machine.cgroups import cgroup_memory_limit
from warren.runtime.machine.linux_memory import ProcessMemory, heap_trimmer, meminfo_line, total_memory

MIB = 1 << 20

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="this system is not Linux")


@pytest.fixture
def proc(tmp_path):
    """An empty /proc, and `write` for its files."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


def limit(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n")


class TestTotal:
    @pytest.mark.parametrize(
        ("line", "read"),
        [
            ("MemTotal:      502968 kB", ("MemTotal", 515_039_232)),
            ("MemFree:       178232 kB", ("MemFree", 182_509_568)),
            ("MemTotal:      50296888", ("MemTotal", 50_296_888)),
            ("MemTotal         502968 kB  ", ("MemTotal", 515_039_232)),
            ("MemFree         178232 KB", ("MemFree", 182_509_568)),
            ("MemTotal         50296888   ", ("MemTotal", 50_296_888)),
        ],
    )
    def test_parse_line_linux(self, line, read):
        """A line of /proc/meminfo is read in each of the six forms of queue-and-store section 12.5."""
        assert meminfo_line(line) == read

    def test_lines_without_a_number_are_skipped(self):
        """Lines without a number, such as headings and unfinished lines, are skipped."""
        assert [meminfo_line(line) for line in ("", "MemTotal:", "Node 0, zone")] == [None] * 3

    def test_it_is_memtotal(self, proc):
        """Without a control group's limit, total memory is what the machine has."""
        (proc / "meminfo").write_text("MemFree: 1 kB\nMemTotal: 2000 kB\n")
        assert total_memory(proc) == 2_048_000

    def test_without_proc_it_is_the_physical_memory(self, proc, monkeypatch):
        """A Linux whose /proc is not mounted still reports its pages through sysconf."""
        monkeypatch.setattr(linux_memory, "physical_memory", lambda: 4096)
        assert total_memory(proc) == 4096

    def test_this_machine_has_some(self):
        """The real /proc is understood."""
        assert 64 * MIB < total_memory() < 2**50


class TestControlGroups:
    """queue-and-store section 8.1: the limit of a control group counts if it is lower."""

    def test_version_2(self, proc, tmp_path):
        root = tmp_path / "cgroup"
        (proc / "self" / "cgroup").write_text("0::/system.slice/warren.service\n")
        (proc / "self" / "mountinfo").write_text(
            f"30 23 0:26 / {root} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
        )
        limit(root / "system.slice" / "warren.service", "memory.max", "max")
        assert cgroup_memory_limit(proc) is None
        limit(root / "system.slice", "memory.max", "1073741824")
        assert cgroup_memory_limit(proc) == 2**30, "of a group above"
        limit(root / "system.slice" / "warren.service", "memory.max", "536870912")
        assert cgroup_memory_limit(proc) == 2**29

    def test_version_1_in_a_container_that_sees_its_own_group(self, proc, tmp_path):
        root = tmp_path / "cgroup" / "memory"
        (proc / "self" / "cgroup").write_text("5:cpu,cpuacct:/docker/ab12\n4:memory:/docker/ab12\n0::/\n")
        (proc / "self" / "mountinfo").write_text(
            f"31 23 0:28 / {tmp_path} rw - tmpfs tmpfs rw\n"
            f"35 31 0:32 /docker/ab12 {root} ro,nosuid - cgroup cgroup rw,memory\n"
            f"34 31 0:31 /docker/ab12 {tmp_path}/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
        )
        limit(root, "memory.limit_in_bytes", "2147483648")
        assert cgroup_memory_limit(proc) == 2**31

    def test_version_1_without_a_limit(self, proc, tmp_path):
        (proc / "self" / "cgroup").write_text("4:memory:/\n")
        (proc / "self" / "mountinfo").write_text(f"35 31 0:32 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n")
        (proc / "meminfo").write_text("MemTotal: 2000 kB\n")
        limit(tmp_path / "memory", "memory.limit_in_bytes", "9223372036854771712")
        assert total_memory(proc) == 2_048_000

    def test_a_group_outside_of_what_is_mounted(self, proc, tmp_path):
        (proc / "self" / "cgroup").write_text("0::/../other\n")
        (proc / "self" / "mountinfo").write_text(f"30 23 0:26 /mine {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n")
        limit(tmp_path / "cgroup", "memory.max", "4096")
        assert cgroup_memory_limit(proc) == 4096

    def test_a_system_without_them(self, proc):
        assert cgroup_memory_limit(proc) is None


class TestUsed:
    @pytest.fixture
    def own(self):
        own = ProcessMemory()
        yield own
        own.close()

    def test_it_is_what_is_resident_and_not_shared(self, proc):
        (proc / "self" / "statm").write_text("9000 700 300 5 0 123 0\n")
        own = ProcessMemory(proc)
        assert own.anonymous() == 400 * os.sysconf("SC_PAGE_SIZE")
        own.close()

    def test_a_system_without_proc(self, tmp_path):
        with pytest.raises(OSError):
            ProcessMemory(tmp_path)

    def test_heap_counts(self, own):
        # Otherwise the block may be put where earlier tests have freed memory, which is counted already.
        if (trim := heap_trimmer()) is not None:
            trim()
        before = own.anonymous()
        block = bytearray(b"x") * (64 * MIB)
        assert own.anonymous() - before > 56 * MIB
        del block

    def test_mapped_files_do_not(self, own, tmp_path):
        """Pages of mapped files do not count as the process's memory, because the system takes them back by itself
        (D-11).
        """
        file = tmp_path / "mapped"
        file.write_bytes(b"x" * (64 * MIB))
        before = own.anonymous()
        with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert sum(mapped[at] for at in range(0, len(mapped), 4096)) > 0
            assert own.anonymous() - before < 16 * MIB


class TestHeapTrimmer:
    def test_it_returns_what_the_library_keeps(self):
        """The C library keeps free pages between blocks in use until `malloc_trim` returns them (QS-16)."""
        trim = heap_trimmer()
        if trim is None:
            pytest.skip("this C library has no malloc_trim")
        own = ProcessMemory()
        blocks = [bytes(16_000) for _ in range(8_000)]
        del blocks[::2]
        before = own.anonymous()
        trim()
        assert before - own.anonymous() > 32 * MIB
        own.close()
        del blocks

    def test_a_library_without_it(self, monkeypatch):
        monkeypatch.setattr(linux_memory.ctypes, "CDLL", lambda name: object())
        assert heap_trimmer() is None
