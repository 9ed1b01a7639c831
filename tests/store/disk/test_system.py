"""Each facility of the operating system and its portable replacement, with a stand-in for calls that Linux lacks."""

from __future__ import annotations

import errno
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from warren.portable import IS_PORTABLE
from warren.store.disk.system import boot_id, file_sync, preallocation
from warren.store.disk.system.directory_sync import sync_directory
from warren.store.disk.system.file_lock import NoLocks, PosixLocks, WindowsLocks, locks
from warren.store.disk.system.file_sync import sync_data, sync_file, sync_fully
from warren.store.disk.system.positioned_access import Access, PositionedAccess, SeekingAccess
from warren.store.disk.system.synced_write import has_synced_writes, is_fuse

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def fd(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


class TestChoice:
    @needs_linux
    def test_linux_uses_its_own_calls_unless_the_twins_are_forced(self, tmp_path):
        assert Access is (SeekingAccess if IS_PORTABLE else PositionedAccess)
        assert sync_file is (sync_fully if IS_PORTABLE else sync_data)
        assert boot_id.this_boot is (boot_id.portable_boot_id if IS_PORTABLE else boot_id.linux_boot_id)
        assert (preallocation._fallocate is None) == IS_PORTABLE
        assert not (IS_PORTABLE and has_synced_writes(str(tmp_path)))


class TestSync:
    @pytest.mark.parametrize("sync", [pytest.param(sync_data, marks=needs_linux), sync_fully])
    def test_of_a_file_that_is_no_more_raises(self, sync):
        with pytest.raises(OSError, match="Bad file descriptor"):
            sync(1 << 20)

    def test_macos_asks_the_drive_to_empty_its_cache(self, fd, monkeypatch):
        """On macOS a sync uses F_FULLFSYNC, which does what fsync does on Linux."""
        calls = []
        monkeypatch.setattr(file_sync, "_FULL_SYNC", 51)
        monkeypatch.setattr(file_sync, "_fcntl", SimpleNamespace(fcntl=lambda *call: calls.append(call)))
        monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
        sync_fully(fd)
        assert calls == [(fd, 51)]

    @pytest.mark.parametrize(("number", "is_synced"), [(errno.ENOTSUP, True), (errno.EIO, False)])
    def test_macos_uses_fsync_on_a_volume_without_full_sync(self, fd, monkeypatch, number, is_synced):
        """On a macOS volume without F_FULLFSYNC a sync uses fsync; any other error is raised, because it is the disk's
        answer.
        """
        calls = []

        def refuse(*call):
            raise OSError(number, "refused")

        monkeypatch.setattr(file_sync, "_FULL_SYNC", 51)
        monkeypatch.setattr(file_sync, "_fcntl", SimpleNamespace(fcntl=refuse))
        monkeypatch.setattr(os, "fsync", calls.append)
        if is_synced:
            sync_fully(fd)
        else:
            with pytest.raises(OSError, match="refused"):
                sync_fully(fd)
        assert calls == [fd] * is_synced

    def test_of_a_directory_that_does_not_exist_raises(self, tmp_path):
        sync_directory(str(tmp_path))
        with pytest.raises(FileNotFoundError):
            sync_directory(str(tmp_path / "none"))

    def test_windows_opens_no_directory(self, tmp_path, monkeypatch):
        monkeypatch.setattr("warren.store.disk.system.directory_sync.os", SimpleNamespace(name="nt"))
        sync_directory(str(tmp_path))


@needs_linux
def test_which_file_systems_are_fuse():
    """The answer agrees with the kernel's list of mounts."""
    with open("/proc/self/mounts") as mounts:
        kinds = {line.split()[1]: line.split()[2] for line in mounts}  # the file system mounted last counts
    for where, kind in kinds.items():
        if os.access(where, os.R_OK) and not where.startswith("/proc/") and "\\" not in where and kind != "autofs":
            assert is_fuse(where) == (kind in ("fuse", "fuseblk", "virtiofs") or kind.startswith("fuse."))


class ByteLocks:
    """`msvcrt` as far as `WindowsLocks` uses it: a byte is locked for one descriptor, until the test unlocks it."""

    LK_NBLCK = 2

    def __init__(self):
        self._owners = {}

    def locking(self, fd, mode, count):
        assert mode == self.LK_NBLCK
        start = os.lseek(fd, 0, os.SEEK_CUR)
        wanted = range(start, start + count)
        if any(byte in self._owners for byte in wanted):
            raise PermissionError(errno.EACCES, "locked")
        self._owners.update(dict.fromkeys(wanted, fd))

    def unlock(self, fd):
        self._owners = {byte: owner for byte, owner in self._owners.items() if owner != fd}


class TestLocks:
    @pytest.fixture(params=["posix", "windows"])
    def case(self, request, tmp_path):
        """(locks, function that opens the file, function that closes it)."""
        path = tmp_path / "lock"

        def open_lock():
            return os.open(path, os.O_RDWR | os.O_CREAT)

        if request.param == "posix":
            return PosixLocks(pytest.importorskip("fcntl")), open_lock, os.close
        stand_in = ByteLocks()

        def close_lock(fd):
            stand_in.unlock(fd)
            os.close(fd)

        return WindowsLocks(stand_in), open_lock, close_lock

    def test_an_exclusive_lock_excludes_all_others(self, case):
        locks, open_lock, close_lock = case
        held, other = open_lock(), open_lock()
        assert locks.try_lock(held, is_shared=False)
        assert not locks.try_lock(other, is_shared=False) and not locks.try_lock(other, is_shared=True)
        close_lock(held)
        assert locks.try_lock(other, is_shared=False)
        close_lock(other)

    def test_shared_locks_exclude_an_exclusive_one_alone(self, case):
        locks, open_lock, close_lock = case
        first, second, other = open_lock(), open_lock(), open_lock()
        assert locks.try_lock(first, is_shared=True) and locks.try_lock(second, is_shared=True)
        close_lock(first)
        assert not locks.try_lock(other, is_shared=False)
        close_lock(second)
        assert locks.try_lock(other, is_shared=False)
        close_lock(other)

    @pytest.mark.parametrize("is_shared", [True, False])
    def test_one_that_waits_gets_the_lock_when_its_holder_closes(self, case, is_shared):
        locks, open_lock, close_lock = case
        held, other = open_lock(), open_lock()
        locks.lock(held, is_shared=not is_shared)
        has_lock = threading.Event()
        waiter = threading.Thread(target=lambda: (locks.lock(other, is_shared), has_lock.set()))
        waiter.start()
        assert not has_lock.wait(0.05)
        close_lock(held)
        assert has_lock.wait(60)
        waiter.join()
        close_lock(other)

    def test_the_text_of_a_locked_file_can_be_read(self, case):
        """The text of a locked file can be read, because the lock file of a data directory names its holder."""
        locks, open_lock, close_lock = case
        held, other = open_lock(), open_lock()
        os.write(held, b"holder")
        locks.lock(held, is_shared=False)
        assert os.read(other, 100) == b"holder"
        close_lock(held)
        close_lock(other)

    def test_posix_systems_have_flock(self):
        assert isinstance(locks, PosixLocks) == (os.name == "posix")

    def test_a_system_without_locks_refuses(self, fd):
        for refused in (NoLocks().lock, NoLocks().try_lock):
            with pytest.raises(OSError, match="no file locks"):
                refused(fd, is_shared=True)


class TestBootId:
    @needs_linux
    def test_linux_has_one_for_each_boot(self):
        assert len(boot_id.linux_boot_id()) == 36 and boot_id.linux_boot_id() == boot_id.linux_boot_id()

    def test_the_twin_is_the_same_for_all_of_a_process(self):
        assert boot_id.portable_boot_id() == boot_id.portable_boot_id() != ""

    @pytest.mark.parametrize("code", [0, 1])
    def test_macos_has_one_for_each_boot(self, monkeypatch, code):
        """If `sysctl` fails, this process counts as a boot of its own."""
        answer = SimpleNamespace(returncode=code, stdout="4C11-9F\n")
        monkeypatch.setattr(boot_id, "sys", SimpleNamespace(platform="darwin"))
        monkeypatch.setattr(boot_id.subprocess, "run", lambda *_, **__: answer)
        asked = boot_id.portable_boot_id.__wrapped__()
        assert asked == "4C11-9F" if code == 0 else asked.startswith("process ")
