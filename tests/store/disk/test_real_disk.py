"""`RealFile`: appending and syncing in one call where the system has one, the errors of that call, and what replaces it
elsewhere.
"""

from __future__ import annotations

import errno
import os

import pytest

from warren.store.disk import real_disk
from warren.store.disk.disk import SyncFailed
from warren.store.disk.real_disk import RealDisk
from warren.store.disk.system import preallocation, synced_write
from warren.store.disk.system.positioned_access import MAX_WRITEV_BUFFERS, PositionedAccess, SeekingAccess

needs_synced_writes = pytest.mark.skipif(
    not synced_write._RWF_DSYNC, reason="the system has no write that syncs, or WARREN_PORTABLE forbids it"
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(synced_write, "is_fuse", lambda path: False)  # the tests may run on FUSE
    file = RealDisk(str(tmp_path)).open("file", create=True)
    file.append([b"0"])
    yield file
    file.close()


class Calls:
    """Records the calls of `pwritev` and `fdatasync`, in order.

    Each of `results` is what one `pwritev` does: raise that OSError, write that many bytes, or write all (None).
    """

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
def test_one_call_appends_and_syncs(file, monkeypatch):
    calls = Calls(monkeypatch)
    file.append_synced([b"one", b"two"])
    file.append_synced([b"three"])
    assert file.read(0, 100) == b"0onetwothree"
    assert calls.seen == [("pwritev", os.RWF_DSYNC)] * 2


@needs_synced_writes
def test_the_rest_of_a_short_write_is_written_and_synced(file, monkeypatch):
    calls = Calls(monkeypatch, 4)
    file.append_synced([b"one", b"two", b"three"])
    assert file.read(0, 100) == b"0onetwothree"
    assert calls.seen == [("pwritev", os.RWF_DSYNC), "fdatasync"]


@needs_synced_writes
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_kernel_without_the_call_is_asked_once(file, monkeypatch, number):
    """A kernel or sandbox without the call for a synced write is asked for it once; from then on the file is written
    and synced with two calls.
    """
    calls = Calls(monkeypatch, OSError(number, "no such flag"))
    file.append_synced([b"one"])
    file.append_synced([b"two"])
    assert file.read(0, 100) == b"0onetwo"
    assert calls.seen == [("pwritev", os.RWF_DSYNC), "fdatasync", "fdatasync"]


@needs_synced_writes
def test_more_buffers_than_one_call_takes_are_written_and_then_synced(file, monkeypatch):
    calls = Calls(monkeypatch)
    file.append_synced([b"%05d" % number for number in range(MAX_WRITEV_BUFFERS + 1)])
    assert file.size() == 1 + 5 * (MAX_WRITEV_BUFFERS + 1)
    assert calls.seen == ["fdatasync"]


@needs_synced_writes
def test_a_full_disk_synced_nothing_and_after_a_broken_one_nothing_is_known(file, monkeypatch):
    """A synced write that fails on a full disk has synced nothing, so the caller tries again. After any other error
    nothing is known, and the process that owns the file ends.
    """
    Calls(monkeypatch, OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="full") as full:
        file.append_synced([b"one"])
    assert not isinstance(full.value, SyncFailed)
    with pytest.raises(SyncFailed, match="broken") as broken:
        file.append_synced([b"one"])
    assert broken.value.errno == errno.EIO


@needs_synced_writes
def test_a_sync_that_fails_after_a_short_write_raises_sync_failed(file, monkeypatch):
    calls = Calls(monkeypatch, 1)
    monkeypatch.setattr(calls, "_fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(SyncFailed, match="broken"):
        file.append_synced([b"one"])


@needs_synced_writes
def test_a_file_on_fuse_is_written_and_synced_with_two_calls(tmp_path, monkeypatch):
    """On FUSE a file is written and synced with two calls, because the program that serves the file system may take a
    synced write for an ordinary one.
    """
    monkeypatch.setattr(synced_write, "is_fuse", lambda path: path == str(tmp_path))
    file = RealDisk(str(tmp_path)).open("file", create=True)
    calls = Calls(monkeypatch)
    file.append_synced([b"one"])
    assert calls.seen == ["fdatasync"]
    file.close()


@pytest.mark.parametrize("access", [PositionedAccess, SeekingAccess])
def test_any_access_appends_at_the_end_and_reads_anywhere(tmp_path, monkeypatch, access):
    monkeypatch.setattr(real_disk, "Access", access)
    file = RealDisk(str(tmp_path)).open("file", create=True)
    file.append([b"one", b"two"])
    assert file.read(1, 3) == b"net"
    file.append([b"%05d" % number for number in range(MAX_WRITEV_BUFFERS + 1)])
    assert file.read(0, 11) == b"onetwo00000" and file.read(file.size() - 5, 100) == b"01024"
    file.truncate(2)
    file.append_synced([b"!"])
    assert file.read(0, 100) == b"on!" and file.read(3, 1) == file.read(99, 1) == b""
    file.close()


def test_a_short_write_is_finished(tmp_path, monkeypatch):
    file = RealDisk(str(tmp_path)).open("file", create=True)
    monkeypatch.setattr(os, "writev", lambda fd, pieces, real=os.writev: real(fd, [pieces[0]]))
    monkeypatch.setattr(os, "write", lambda fd, data, real=os.write: real(fd, data[:2]))
    file.append([b"one", b"two", b"three"])
    assert file.read(0, 100) == b"onetwothree"
    file.close()


@pytest.mark.parametrize("size", [1, 1 << 20, 1 << 60])
def test_a_reservation_changes_neither_size_nor_content(tmp_path, size):
    file = RealDisk(str(tmp_path)).open("file", create=True)
    file.append([b"0"])
    file.reserve(size)
    assert file.size() == 1 and file.read(0, 9) == b"0"
    file.close()


@pytest.mark.parametrize("is_portable", [False, True])
def test_an_allocated_file_has_all_its_blocks(tmp_path, monkeypatch, is_portable):
    monkeypatch.setattr(preallocation, "IS_PORTABLE", is_portable)
    file = RealDisk(str(tmp_path)).open("reserve", create=True)
    file.allocate(3_000_000)
    file.close()
    found = (tmp_path / "reserve").stat()
    assert found.st_size == 3_000_000 <= found.st_blocks * 512


def test_a_file_is_closed_when_nothing_refers_to_it(tmp_path):
    """A file is closed when nothing refers to it any more: a job in another thread may use it longer than the process
    that opened it lives.
    """
    file = RealDisk(str(tmp_path)).open("kept", create=True)
    fd = file._fd
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
