"""`DiskMonitor`: raises the disk alarm while the file system of the data directory has less free space than the limit.

It measures more often the less space is left, on the assumption that nobody fills a disk faster than 250 MB/s: every 10
s with 1.25 GB above the limit, ten times a second near the limit (queue-and-store section 8.6). While the alarm is on
it measures every 10 s. It cannot wholly prevent that the disk becomes full between two measurements.

It also makes the reserve of the data directory (`store/data_dir/reserve.py`) as soon as there is room for it.
"""

from __future__ import annotations

import logging

from ...runtime.contract import Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ...settings.limits import LimitError, disk_limit, read_disk_limit, shown_size
from ...store.data_dir import reserve
from ...store.disk.system.synced_write import DISK_FULL
from ..context.node_context import NodeContext
from ..context.starting import ToNewDiskMonitor
from ..contracts.resources import DiskStatus, to_alarms

log = logging.getLogger("warren.disk")

ORIGIN = "disk monitor"

#: Milliseconds between two measurements, at least and at most.
MIN_INTERVAL = 100
MAX_INTERVAL = 10_000

#: Bytes a millisecond by which the free space is assumed to shrink at most.
FILL_RATE = 250_000

#: The monitor stops measuring after `RETRIES` failed measurements in a row, `RETRY_INTERVAL` seconds apart.
RETRIES = 10
RETRY_INTERVAL = 120.0


def measuring_interval(free: int, limit: int) -> float:
    """Seconds until the next measurement (queue-and-store section 8.6)."""
    if free < limit:
        return MAX_INTERVAL / 1000
    return min(max(2 * (free - limit) // FILL_RATE, MIN_INTERVAL), MAX_INTERVAL) / 1000


class DiskMonitor(Process):
    """See the module. While the file system does not answer there is no alarm."""

    contract = ToNewDiskMonitor
    reply_errors = (ProcessError, LimitError)

    def __init__(self) -> None:
        super().__init__()
        self.free: int | None = None
        self.alarmed = False
        self.failures = 0
        self.timer: int | None = None
        #: The reserve of the data directory has still to be made.
        self.lacks_reserve = False

    async def on_start(self, sender: Sender, context: NodeContext, total_memory: int) -> DiskStatus:
        assert context.settings.data_dir is not None
        self.context = context
        self.path = context.settings.data_dir
        self.disk = context.open_disk(self.path)
        self.total_memory = total_memory
        self.limit = disk_limit(read_disk_limit(context.settings.disk_free_limit), total_memory)
        self.lacks_reserve = context.limits.reserve > 0
        await self._measure()
        return self._status()

    async def on_set_limit(self, sender: Sender, value: object) -> DiskStatus:
        self.limit = disk_limit(read_disk_limit(value), self.total_memory)
        log.info("limit of free disk space set to %s", shown_size(self.limit))
        self.failures = 0
        await self._measure()
        return self._status()

    def on_status(self, sender: Sender) -> DiskStatus:
        return self._status()

    def _status(self) -> DiskStatus:
        return {"limit": self.limit, "free": self.free, "alarmed": self.alarmed}

    async def on_timer(self, payload: None) -> None:
        self.timer = None
        await self._measure()

    async def _measure(self) -> None:
        try:
            self.free = free = await self.run_blocking(self.disk.free_space)
        except OSError as error:
            self.free = None
            self._failed(error)
        else:
            self.failures = 0
            self._measure_in(measuring_interval(free, self.limit))
        await self._set_alarm(self.free is not None and self.free < self.limit)
        if self.lacks_reserve and self.free is not None:
            await self._make_reserve()

    async def _make_reserve(self) -> None:
        size = self.context.limits.reserve
        try:
            self.lacks_reserve = not await self.run_blocking(reserve.keep, self.disk, size, self.limit)
        except OSError as error:
            if error.errno in DISK_FULL:
                return  # something else has taken the space meanwhile; the next measurement tries again
            self.lacks_reserve = False
            log.warning(
                "%s has no space in reserve for a start on a full disk, because the file '%s' cannot be made: %s",
                self.path,
                reserve.NAME,
                error,
            )

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        if self.failures <= RETRIES:
            log.warning(
                "free space of %s is unknown: %s; there is no disk alarm meanwhile, next look in %d s",
                self.path,
                error.strerror,
                RETRY_INTERVAL,
            )
            self._measure_in(RETRY_INTERVAL)
        else:
            log.error(
                "free space of %s is still unknown after %d looks: %s; there is no disk alarm from now on",
                self.path,
                self.failures,
                error.strerror,
            )

    def _measure_in(self, seconds: float) -> None:
        # `set_limit` measures at once, which replaces the measurement that was due.
        if self.timer is not None:
            self.cancel_timer(self.timer)
        self.timer = self.start_timer(seconds)

    async def _set_alarm(self, on: bool) -> None:
        if on == self.alarmed:
            return
        self.alarmed = on
        free, limit = shown_size(self.free or 0), shown_size(self.limit)
        if on:
            log.warning(
                "low on disk: %s free for %s, the limit is %s; publishers are blocked until there is more",
                free,
                self.path,
                limit,
            )
        else:
            log.info("no longer low on disk: %s free, the limit is %s", free, limit)
        await self.ask(self.context.alarms, to_alarms.set("disk", on, ORIGIN))
