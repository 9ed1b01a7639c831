"""`RealFile.append_synced`: one call where the system has one, and what it says when that goes wrong."""

from __future__ import annotations

import errno
import os

import pytest

from warren.store.disk.disk import WRITEV_MOST, RealDisk, SyncFailed, _is_in_userspace

needs_synced_writes = pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="the system has no write that syncs")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr("warren.store.disk.disk._is_in_userspace", lambda path: False)  # wherever the tests run
    file = RealDisk(str(tmp_path)).open("file", create=True)
    file.append([b"0"])
    yield file
    file.close()


class Calls:
    """What of the system is called, in order; `results` says what `pwritev` does each time: an errno, how much it writes, or None for all."""

    def __init__(self, monkeypatch, *results):
        self.seen, self._results = [], list(results)
        self._pwritev, self._fdatasync = os.pwritev, os.fdatasync
        monkeypatch.setattr(os, "pwritev", self.pwritev)
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def pwritev(self, fd, buffers, offset, flags):
        self.seen.append(("pwritev", flags))
        result = self._results.pop(0) if self._results else None
        if isinstance(result, OSError):
            raise result
        data = b"".join(buffers)
        return self._pwritev(fd, [data[:result]], offset, flags)

    def fdatasync(self, fd):
        self.seen.append("fdatasync")
        self._fdatasync(fd)


@needs_synced_writes
def test_it_is_one_call_that_appends_and_syncs(file, monkeypatch):
    calls = Calls(monkeypatch)
    file.append_synced([b"one", b"two"])
    file.append_synced([b"three"])
    assert file.read(0, 100) == b"0onetwothree"
    assert calls.seen == [("pwritev", os.RWF_DSYNC)] * 2


@needs_synced_writes
def test_what_a_short_write_left_is_written_and_synced(file, monkeypatch):
    calls = Calls(monkeypatch, 4)
    file.append_synced([b"one", b"two", b"three"])
    assert file.read(0, 100) == b"0onetwothree"
    assert calls.seen == [("pwritev", os.RWF_DSYNC), "fdatasync"]


@needs_synced_writes
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_the_system_has_no_such_call_there_are_two(file, monkeypatch, number):
    """An old kernel, or a sandbox: found out once."""
    calls = Calls(monkeypatch, OSError(number, "no such flag"))
    file.append_synced([b"one"])
    file.append_synced([b"two"])
    assert file.read(0, 100) == b"0onetwo"
    assert calls.seen == [("pwritev", os.RWF_DSYNC), "fdatasync", "fdatasync"]


@needs_synced_writes
def test_more_buffers_than_the_system_takes_at_once(file, monkeypatch):
    calls = Calls(monkeypatch)
    file.append_synced([b"%05d" % number for number in range(WRITEV_MOST + 1)])
    assert file.size() == 1 + 5 * (WRITEV_MOST + 1)
    assert calls.seen == ["fdatasync"]


@needs_synced_writes
def test_of_a_full_disk_it_is_sure_that_nothing_was_synced_and_of_a_broken_one_it_is_not(file, monkeypatch):
    """The first is tried again, the second ends the process whose file it is."""
    Calls(monkeypatch, OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="full") as full:
        file.append_synced([b"one"])
    assert not isinstance(full.value, SyncFailed)
    with pytest.raises(SyncFailed, match="broken") as broken:
        file.append_synced([b"one"])
    assert broken.value.errno == errno.EIO


@needs_synced_writes
def test_a_sync_that_fails_behind_a_short_write(file, monkeypatch):
    calls = Calls(monkeypatch, 1)
    monkeypatch.setattr(calls, "_fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(SyncFailed, match="broken"):
        file.append_synced([b"one"])


def test_on_a_file_system_in_userspace_there_are_two(tmp_path, monkeypatch):
    """A program that serves one may take a synced write for any other."""
    monkeypatch.setattr("warren.store.disk.disk._is_in_userspace", lambda path: path == str(tmp_path))
    file = RealDisk(str(tmp_path)).open("file", create=True)
    calls = Calls(monkeypatch)
    file.append_synced([b"one"])
    assert calls.seen == ["fdatasync"]
    file.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/mounts"), reason="needs /proc")
def test_which_file_systems_are_in_userspace():
    """As the kernel lists them."""
    with open("/proc/self/mounts") as mounts:
        kinds = {line.split()[1]: line.split()[2] for line in mounts}  # the last one mounted there counts
    for where, kind in kinds.items():
        if os.access(where, os.R_OK) and not where.startswith("/proc/") and "\\" not in where and kind != "autofs":
            assert _is_in_userspace(where) == (kind in ("fuse", "fuseblk", "virtiofs") or kind.startswith("fuse."))
