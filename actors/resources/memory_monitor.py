"""`MemoryMonitor`: raises the memory alarm above the high watermark, and gives free heap back (QS 8.1, 8.2, QS-16, D-11).

    memory in use > limit, no alarm      give free heap back, look again; still above: set the alarm
    memory in use <= limit, alarm        clear it

There is no hysteresis, as in RabbitMQ: at the limit publishers are let in for a sample, then held back for one. What is measured is the
operating-system process that the monitor runs in: on an event loop the whole node, and the program around an embedded one. Where it cannot be measured there is
no alarm, which is logged once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ...limits import LimitError, memory_limit, read_watermark, shown_size
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.machine.memory import Meter
from ...runtime.process import Process
from .heap_return import HeapReturn
from .ram_durations import INFINITE, RamDurations

log = logging.getLogger("warren.memory")

ORIGIN = "memory monitor"


class MemoryMonitor(Process):
    """
    ('start', context)         -> the status, after a first sample
    ('set_watermark', value)   -> the status, after a sample; LimitError. The memory there is, is looked up again; holds until the node ends
    ('duration', queue, seconds)   told: what the queue has in memory would last so long (QS 8.3). Whenever it may keep another stretch of its traffic than it was told
                               last (at first: all) it hears ('ram_duration_target', seconds): less at once, more when it reports
    ('status',)                -> {'total', 'limit', 'used': bytes, 'alarmed': bool}, of a sample taken now; `used` is None if it cannot be measured
    """

    reply_errors = (ProcessError, LimitError)

    def __init__(self) -> None:
        super().__init__()
        self.memory: Meter | None = None
        self.used: int | None = None
        self.alarmed = False
        self.disk_alarm = False

    async def on_start(self, sender: Any, context: Any) -> dict[str, Any]:
        self.context = context
        self.trim = self.machine_memory.trimmer()
        self.heap_return = HeapReturn()
        try:
            self.memory = self.machine_memory.meter()
        except OSError as error:
            log.warning("memory in use cannot be measured here, so there is no memory alarm: %s", error)
        self._set_limit(context.settings.vm_memory_high_watermark)
        self.durations = RamDurations(context.settings.vm_memory_high_watermark_paging_ratio)
        self.send(context.alarms, ("register", self.myAddress))
        await self._sample()
        self._wait()
        return self._status()

    async def on_set_watermark(self, sender: Any, value: Any) -> dict[str, Any]:
        self._set_limit(value)
        log.info("memory high watermark set to %s", shown_size(self.limit))
        await self._sample()
        return self._status()

    async def on_status(self, sender: Any) -> dict[str, Any]:
        await self._sample()
        return self._status()

    def on_duration(self, sender: Any, queue: str, seconds: float) -> None:
        if queue not in self.durations:
            self.monitor(sender, queue)
        target = self.durations.report(queue, sender, seconds)
        if target is not None:
            self.send(sender, ("ram_duration_target", target))

    def on_down(self, name: Any, reason: ExitReason) -> None:
        self.durations.forget(name)

    def on_alarms(self, sender: Any, sources: tuple[str, ...]) -> None:
        """From Alarms. While the disk is low nothing is paged out (S000)."""
        self.disk_alarm = "disk" in sources
        self._share_out()

    def _share_out(self) -> None:
        if self.used is not None:
            for address, seconds in self.durations.update(
                self.used / self.limit if self.limit else INFINITE, self.disk_alarm
            ):
                self.send(address, ("ram_duration_target", seconds))

    async def on_timer(self, payload: Any) -> None:
        await self._sample()
        self._wait()

    def on_exit(self) -> None:
        if self.memory is not None:
            self.memory.close()

    def _set_limit(self, watermark: Any) -> None:
        share = read_watermark(watermark)
        override = self.context.settings.total_memory_available_override_value
        self.total = self.machine_memory.total() if override is None else override
        self.limit = memory_limit(share, self.total)

    def _status(self) -> dict[str, Any]:
        return {"total": self.total, "limit": self.limit, "used": self.used, "alarmed": self.alarmed}

    def _wait(self) -> None:
        if self.memory is not None:
            self.start_timer(self.context.settings.memory_monitor_interval / 1000)

    async def _sample(self) -> None:
        if self.memory is None:
            return
        # Without blocking: /proc is memory.
        self.used = used = self.memory.anonymous()
        if self.trim is not None and self.heap_return.is_due(self.now(), used, self.alarmed or used > self.limit):
            seconds = await self.run_blocking(_timed, self.trim)
            self.used = self.memory.anonymous()
            self.heap_return.tried(self.now(), seconds, used, self.used)
            log.debug("gave %s of free heap back in %.1f ms", shown_size(max(used - self.used, 0)), seconds * 1000)
        self._share_out()
        await self._alarm(self.used > self.limit)

    async def _alarm(self, on: bool) -> None:
        if on == self.alarmed:
            return
        self.alarmed = on
        used, limit = shown_size(self.used or 0), shown_size(self.limit)
        if on:
            log.warning(
                "low on memory: %s in use, the high watermark is %s; publishers are blocked until it is less",
                used,
                limit,
            )
        else:
            log.info("no longer low on memory: %s in use, the high watermark is %s", used, limit)
        await self.ask(self.context.alarms, ("set", "memory", on, ORIGIN))


def _timed(function: Callable[[], object]) -> float:
    """Seconds it took."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
