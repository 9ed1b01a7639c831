"""`DiskMonitor`: raises the disk alarm when the file system of the data directory has less free space than the limit (QS 8.6).

It looks the more often the less space is left over, assuming that nobody fills a disk faster than 250 MB/s: every 10 s with 1.25 GB above the limit, ten times a
second near it. While the alarm is on it looks every 10 s. It cannot wholly prevent that the disk runs full between two looks.
"""

from __future__ import annotations

import logging
from typing import Any

from ...limits import LimitError, disk_limit, read_disk_limit, shown_size
from ...runtime.errors import ProcessError
from ...runtime.process import Process

log = logging.getLogger("warren.disk")

ORIGIN = "disk monitor"

MIN_INTERVAL = 100  # ms
MAX_INTERVAL = 10_000  # ms
FILL_RATE = 250_000  # bytes/ms that are assumed at most

RETRIES = 10
RETRY_INTERVAL = 120.0  # s


def next_look(free: int, limit: int) -> float:
    """Seconds until the next look (QS 8.6)."""
    if free < limit:
        return MAX_INTERVAL / 1000
    return min(max(2 * (free - limit) // FILL_RATE, MIN_INTERVAL), MAX_INTERVAL) / 1000


class DiskMonitor(Process):
    """
    ('start', context, total_memory)   -> the status, after a first look
    ('set_limit', value)               -> the status, after a look; LimitError. Holds until the node ends
    ('status',)                        -> {'limit', 'free': bytes, 'alarmed': bool} as of the last look; `free` is None if the file system does not answer

    If it does not, there is no alarm; it is asked again every two minutes, ten times.
    """

    reply_errors = (ProcessError, LimitError)

    def __init__(self) -> None:
        super().__init__()
        self.free: int | None = None
        self.alarmed = False
        self.failures = 0
        self.timer: int | None = None

    async def on_start(self, sender: Any, context: Any, total_memory: int) -> dict[str, Any]:
        self.context = context
        self.disk = context.open_disk(context.settings.data_dir)
        self.total_memory = total_memory
        self.limit = disk_limit(read_disk_limit(context.settings.disk_free_limit), total_memory)
        await self._look()
        return self.on_status(sender)

    async def on_set_limit(self, sender: Any, value: Any) -> dict[str, Any]:
        self.limit = disk_limit(read_disk_limit(value), self.total_memory)
        log.info("limit of free disk space set to %s", shown_size(self.limit))
        self.failures = 0
        await self._look()
        return self.on_status(sender)

    def on_status(self, sender: Any) -> dict[str, Any]:
        return {"limit": self.limit, "free": self.free, "alarmed": self.alarmed}

    async def on_timer(self, payload: Any) -> None:
        self.timer = None
        await self._look()

    async def _look(self) -> None:
        path = self.context.settings.data_dir
        try:
            self.free = await self.run_blocking(self.disk.free_space)
        except OSError as error:
            self.free = None
            self._failed(path, error)
        else:
            self.failures = 0
            self._wait(next_look(self.free, self.limit))
        await self._alarm(self.free is not None and self.free < self.limit)

    def _failed(self, path: str, error: OSError) -> None:
        self.failures += 1
        if self.failures <= RETRIES:
            log.warning(
                "free space of %s is unknown: %s; there is no disk alarm meanwhile, next look in %d s",
                path,
                error.strerror,
                RETRY_INTERVAL,
            )
            self._wait(RETRY_INTERVAL)
        else:
            log.error(
                "free space of %s is still unknown after %d looks: %s; there is no disk alarm from now on",
                path,
                self.failures,
                error.strerror,
            )

    def _wait(self, seconds: float) -> None:
        # A look that was asked for replaces the one that was due.
        if self.timer is not None:
            self.cancel_timer(self.timer)
        self.timer = self.start_timer(seconds)

    async def _alarm(self, on: bool) -> None:
        if on == self.alarmed:
            return
        self.alarmed = on
        free, limit = shown_size(self.free or 0), shown_size(self.limit)
        if on:
            log.warning(
                "low on disk: %s free for %s, the limit is %s; publishers are blocked until there is more",
                free,
                self.context.settings.data_dir,
                limit,
            )
        else:
            log.info("no longer low on disk: %s free, the limit is %s", free, limit)
        await self.ask(self.context.alarms, ("set", "disk", on, ORIGIN))
