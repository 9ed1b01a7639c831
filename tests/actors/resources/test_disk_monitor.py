"""The disk monitor on a file system that the test controls (queue-and-store section 8.6)."""

from __future__ import annotations

import errno
import logging
import threading

import pytest

from warren.actors.context.node_context import NodeContext
from warren.actors.resources import disk_monitor
from warren.actors.resources.disk_monitor import DiskMonitor, measuring_interval
from warren.settings import Settings
from warren.settings.limits import LimitError
from warren.store.data_dir import reserve
from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.real_disk import RealDisk

WAIT = 300.0
MB = 1_000_000
MEMORY = 16_000 * MB


class FileSystem(FaultyDisk):
    """A file system that has `free` bytes, or raises `error`. `looked` is released at each measurement."""

    def __init__(self):
        super().__init__()
        self.free = 5_000 * MB
        self.error = None
        self.looks = 0
        self.looked = threading.Semaphore(0)

    def free_space(self):
        self.looks += 1
        self.looked.release()
        if self.error is not None:
            raise self.error
        return self.free


@pytest.fixture
def files():
    return FileSystem()


@pytest.fixture
def monitor(system):
    return system.createActor(DiskMonitor)


@pytest.fixture
def start(client, monitor, alarms, files, tmp_path):
    def start(**settings):
        given = Settings(**{"data_dir": tmp_path, **settings})
        return client.ask(
            monitor,
            (
                "start",
                NodeContext("warren@test", given, None, None, alarms, None, open_disk=lambda root: files),
                MEMORY,
            ),
            WAIT,
        )

    return start


@pytest.fixture
def set_limit(client, monitor):
    return lambda limit: client.ask(monitor, ("set_limit", limit), WAIT)


@pytest.mark.parametrize(
    ("over", "seconds"),
    [
        (-1, 10.0),
        (0, 0.1),
        (12_500_000, 0.1),
        (12_625_000, 0.101),
        (125_000_000, 1.0),
        (1_250_000_000, 10.0),
        (10**12, 10.0),
    ],
)
def test_it_measures_more_often_the_less_space_is_left(over, seconds):
    """The monitor waits for clamp(trunc(2 x (free - limit) / 250000), 100, 10000) ms, or 10 s under an alarm
    (queue-and-store section 8.6).
    """
    assert measuring_interval(50 * MB + over, 50 * MB) == seconds


def test_disk_monitor(tmp_path):
    """The free space is a whole number and not negative (queue-and-store section 12.5)."""
    found = RealDisk(str(tmp_path)).free_space()
    assert type(found) is int and found >= 0


def test_its_status(files, start):
    assert start() == {"limit": 50 * MB, "free": 5_000 * MB, "alarmed": False}


def test_the_alarm_is_on_below_the_limit(files, start, set_limit, active_alarms):
    """The alarm is on exactly while the free space is below the limit (queue-and-store section 8.6)."""
    start()
    seen = []
    for free in (50 * MB, 50 * MB - 1, 0, 50 * MB):
        files.free = free
        set_limit(50 * MB)
        seen.append(active_alarms())
    assert seen == [(), ("disk",), ("disk",), ()]


def test_it_measures_by_itself(files, start, active_alarms, eventually):
    """Near the limit the monitor measures ten times a second without being asked."""
    files.free = 51 * MB
    start()
    assert files.looked.acquire(timeout=WAIT) and files.looked.acquire(timeout=WAIT)
    files.free = 49 * MB
    eventually(lambda: active_alarms() == ("disk",))


def test_it_makes_the_reserve_as_soon_as_there_is_room(files, start, set_limit):
    """The reserve is written as soon as the space that then remains free is at least the limit, and at least as large
    as the reserve.
    """
    files.free = 2 * reserve.SIZE - 1
    start(disk_free_limit=0)
    assert not files.exists(reserve.NAME)
    files.free = 2 * reserve.SIZE
    set_limit(2 * reserve.SIZE)
    assert not files.exists(reserve.NAME)
    set_limit(reserve.SIZE)
    assert files.open(reserve.NAME).size() == reserve.SIZE


def test_a_reserve_that_does_not_fit_leaves_nothing_behind(files, start, set_limit):
    """If another program fills the disk between measurement and write, the part of the reserve that was written is
    deleted.
    """
    files.heal()
    files.fail_after(2, OSError(errno.ENOSPC, "no room"))
    start()
    assert not files.exists(reserve.NAME)
    files.heal()
    set_limit(50 * MB)
    assert files.exists(reserve.NAME)


def test_set_disk_free_limit_command(files, start, set_limit):
    """`set_disk_free_limit` takes effect, and 0 switches the alarm off (queue-and-store section 12.5)."""
    start()
    given = [1.0, {"mem_relative": 1.5}, "70MiB", "50MB", 0]
    assert [set_limit(limit)["limit"] for limit in given] == [MEMORY, MEMORY * 1.5, 73_400_320, 50 * MB, 0]
    files.free = 0
    assert set_limit(0)["alarmed"] is False


def test_a_limit_that_cannot_be_read_changes_nothing(files, start, set_limit, base, monitor):
    start()
    with pytest.raises(LimitError, match="'half' is not a multiple of memory"):
        set_limit("half")
    assert base.cells[monitor.actorAddressString].actor.limit == 50 * MB


def test_a_limit_relative_to_memory_in_the_settings(files, start):
    assert start(disk_free_limit=1.0) == {"limit": MEMORY, "free": 5_000 * MB, "alarmed": True}


class TestAFileSystemThatDoesNotAnswer:
    @pytest.fixture
    def silent(self, files, monkeypatch):
        monkeypatch.setattr(disk_monitor, "RETRY_INTERVAL", 0.001)
        files.error = OSError(errno.EIO, "Input/output error")
        return files

    def test_disk_monitor_enable(self, silent, start, client, monitor, active_alarms, eventually, caplog):
        """If space cannot be measured, the monitor makes ten more attempts without an alarm, and then stops
        (queue-and-store sections 8.6 and 12.5).
        """
        with caplog.at_level(logging.WARNING, "warren.disk"):
            assert start() == {"limit": 50 * MB, "free": None, "alarmed": False}
            eventually(lambda: "still unknown after 11 looks: Input/output error" in caplog.text)
        assert silent.looks == 11
        assert active_alarms() == ()

    def test_a_new_limit_tries_again(self, silent, start, set_limit, eventually, caplog):
        start()
        eventually(lambda: "still unknown" in caplog.text)
        silent.error = None
        assert set_limit("6GB") == {"limit": 6_000 * MB, "free": 5_000 * MB, "alarmed": True}

    def test_it_is_watched_again_when_it_answers(self, silent, start, active_alarms, eventually):
        silent.free = 1
        start()
        silent.error = None
        eventually(lambda: active_alarms() == ("disk",))


def test_the_log_says_what_is_free(files, start, set_limit, caplog, tmp_path):
    start()
    with caplog.at_level(logging.WARNING, "warren.disk"):
        set_limit("6GB")
    assert caplog.messages == [
        f"low on disk: 4.7 GiB free for {tmp_path}, the limit is 5.6 GiB; publishers are blocked until there is more"
    ]
