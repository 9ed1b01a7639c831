"""`MemoryMonitor`: raises the memory alarm while the node uses more memory than the high watermark, and shares memory
out among queues.

It samples the memory in use from time to time (queue-and-store sections 8.1 and 8.2, QS-16, D-11):

    memory in use > limit, no alarm      collect garbage if there is a sign of it (`garbage`), give free heap back and
                                         sample again; if still above, raise the alarm
    memory in use <= limit, alarm        clear the alarm

Between two samples a fast publisher could fill the memory of a small machine. So connections count what they receive
(`ReceivedBytes`), and memory is measured again as soon as they have received `LOOK_SHARE` of the limit. A sample that
gives free heap back may take long: if as much is received meanwhile, the alarm is raised before the sample is done.

There is no hysteresis, as in RabbitMQ: at the limit publishers are let in for one sample and held back for the next.
What is measured is the operating-system process in which the monitor runs: on an event loop that is the whole node, and
the program around an embedded one. Where memory cannot be measured there is no alarm, which is logged once.

While the alarm is on, garbage is collected from time to time. The monitor also gives back the heap of drained queues
(`heap_return`), and limits what each queue keeps in memory (`ram_durations`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessError
from ...runtime.exit_reason import ExitReason
from ...runtime.machine.memory import MemoryMeter
from ...runtime.process import Process
from ...settings.limits import LimitError, memory_limit, read_size, read_watermark, shown_size
from ..context.node_context import NodeContext
from ..context.starting import ToNewMemoryMonitor
from ..contracts.resources import MemoryStatus, ToMemoryUser, to_alarms, to_memory_user
from .garbage import Garbage
from .heap_return import ALARM_PAUSE, HeapReturn
from .ram_durations import INFINITE, RamDurations

log = logging.getLogger("warren.memory")

ORIGIN = "memory monitor"

#: The share of the limit that connections may receive before memory is measured again, and its least value in bytes.
LOOK_SHARE = 0.02
LOOK_BYTES = 4 << 20


class MemoryMonitor(Process):
    """See the module."""

    contract = ToNewMemoryMonitor
    reply_errors = (ProcessError, LimitError)

    def __init__(self) -> None:
        super().__init__()
        self.memory: MemoryMeter | None = None
        self.used: int | None = None
        self.alarmed = False
        self.disk_alarm = False
        #: Whether a sample waits for heap to be given back.
        self.is_sampling = False

    async def on_start(self, sender: Sender, context: NodeContext) -> MemoryStatus:
        self.context = context
        self.trim = self.machine_memory.trimmer()
        self.collect = self.machine_memory.collector()
        self.garbage = Garbage(self.machine_memory.cycles())
        self.heap_return = HeapReturn()
        try:
            self.memory = self.machine_memory.meter()
        except OSError as error:
            log.warning("memory in use cannot be measured here, so there is no memory alarm: %s", error)
        self._set_limit(context.settings.vm_memory_high_watermark)
        self.durations = RamDurations(context.settings.vm_memory_high_watermark_paging_ratio)
        self.send(context.alarms, to_alarms.register(self.myAddress))
        await self._sample()
        self._wait()
        return self._status()

    async def on_set_watermark(self, sender: Sender, value: object) -> MemoryStatus:
        self._set_limit(value)
        log.info("memory high watermark set to %s", shown_size(self.limit))
        await self._sample()
        return self._status()

    async def on_collect(self, sender: Sender) -> int:
        before = 0 if self.memory is None else self.memory.anonymous()
        if self.collect is not None:
            self.collect()
            self.garbage.collected(self.now(), self.machine_memory.cycles())
        if self.trim is not None:
            await self.run_blocking(self.trim)
        return 0 if self.memory is None else max(0, before - self.memory.anonymous())

    def on_status(self, sender: Sender) -> MemoryStatus:
        return self._status()

    def on_duration(self, sender: Address[ToMemoryUser], queue: str, seconds: float) -> None:
        if queue not in self.durations:
            self.monitor(sender, queue)
        target = self.durations.report(queue, sender, seconds)
        if target is not None:
            self.send(sender, to_memory_user.ram_duration_target(target))

    def on_look(self, sender: Sender) -> None:
        # Under the alarm publishers are blocked already, and below the limit there is nothing to do.
        if self.memory is not None and not self.alarmed and (used := self.memory.anonymous()) > self.limit:
            if self.is_sampling:
                self.used = used
                self.spawn(self._set_alarm(True))
            else:
                self.spawn(self._sample())

    def on_down(self, name: str, reason: ExitReason) -> None:
        self.durations.forget(name)

    def on_alarms(self, sender: Sender, sources: tuple[str, ...]) -> None:
        # While the disk is low queues must not page out to it.
        self.disk_alarm = "disk" in sources
        self._share_out()

    def _share_out(self) -> None:
        if self.used is not None:
            for address, seconds in self.durations.update(
                self.used / self.limit if self.limit else INFINITE, self.disk_alarm
            ):
                self.send(address, to_memory_user.ram_duration_target(seconds))

    async def on_timer(self, payload: None) -> None:
        await self._sample()
        self._wait()

    def on_exit(self) -> None:
        if self.memory is not None:
            self.memory.close()

    def _set_limit(self, watermark: object) -> None:
        share = read_watermark(watermark)
        self.setting: float | str = watermark if isinstance(watermark, str) else share
        override = self.context.settings.total_memory_available_override_value
        self.total = self.machine_memory.total() if override is None else read_size(override)
        self.limit = memory_limit(share, self.total)
        if self.memory is not None:
            self.context.received_bytes.due = max(LOOK_BYTES, self.limit * LOOK_SHARE)

    def _status(self) -> MemoryStatus:
        return {
            "total": self.total,
            "setting": self.setting,
            "limit": self.limit,
            "used": self.used,
            "alarmed": self.alarmed,
        }

    def _wait(self) -> None:
        if self.memory is not None:
            seconds = self.context.settings.memory_monitor_interval / 1000
            self.start_timer(min(seconds, ALARM_PAUSE) if self.alarmed else seconds)

    async def _sample(self) -> None:
        if self.memory is None:
            return
        # This needs no other thread, because reading /proc does not wait for a disk.
        self.used = used = self.memory.anonymous()
        is_pressed = self.alarmed or used > self.limit
        if self.heap_return.is_due(self.now(), used, is_pressed):
            seconds = 0.0
            cycles = self.machine_memory.cycles
            if is_pressed and self.collect is not None and self.garbage.is_due(self.now(), cycles()):
                seconds += _timed(self.collect)
                self.garbage.collected(self.now(), cycles())
            if self.trim is not None:
                self.is_sampling = True
                seconds += await self.run_blocking(_timed, self.trim)
                self.is_sampling = False
            self.used = self.memory.anonymous()
            self.heap_return.tried(self.now(), seconds, used, self.used)
            log.debug("gave %s of free heap back in %.1f ms", shown_size(max(used - self.used, 0)), seconds * 1000)
        self._share_out()
        await self._set_alarm(self.used > self.limit)

    async def _set_alarm(self, on: bool) -> None:
        if on == self.alarmed:
            return
        self.alarmed = on
        self.garbage.alarmed(self.now(), on)
        used, limit = shown_size(self.used or 0), shown_size(self.limit)
        if on:
            log.warning(
                "low on memory: %s in use, the high watermark is %s; publishers are blocked until it is less",
                used,
                limit,
            )
        else:
            log.info("no longer low on memory: %s in use, the high watermark is %s", used, limit)
        await self.ask(self.context.alarms, to_alarms.set("memory", on, ORIGIN))


def _timed(function: Callable[[], object]) -> float:
    """Call `function`, and return how many seconds it took."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
