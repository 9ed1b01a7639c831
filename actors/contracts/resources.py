"""The messages of the processes that watch memory and disk: `Alarms`, `DiskMonitor` and `MemoryMonitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ...runtime.contract import Address


class MemoryStatus(TypedDict):
    """What `MemoryMonitor` last measured, in bytes; `used` is None where it cannot be measured.

    `setting` is the watermark in use, from which `limit` follows: a share of `total`, or a size as text.
    """

    total: int
    setting: float | str
    limit: int
    used: int | None
    alarmed: bool


class DiskStatus(TypedDict):
    """What `DiskMonitor` last measured, in bytes; `free` is None while the file system does not answer."""

    limit: int
    free: int | None
    alarmed: bool


class ToAlarmListener(Contract):
    """What a process receives that has registered with `Alarms`."""

    @message
    def alarms(self, sources: tuple[str, ...]) -> None:
        """From `Alarms`, when they change: all that are active now, `memory`, `disk`, both or none (AB-33, AB-34)."""


class ToMemoryUser(Contract):
    """What a process receives that reports to `MemoryMonitor` how much it keeps in memory."""

    @message
    def ram_duration_target(self, seconds: float) -> None:
        """From the memory monitor: keep at most `seconds` of the queue's traffic in memory (queue-and-store section
        8.3).
        """


class ToAlarms(ToAlarmListener):
    """What `Alarms` receives."""

    @message
    def set(self, source: str, on: bool, origin: str = "operator", address: Address[Contract] | None = None) -> bool:
        """From monitors, from the node for an operator, and from processes that write: `origin` raises or clears
        `source`.

        `source` is `memory` or `disk`. An alarm with an `address` is cleared when the process there ends. Answered
        True.
        """

    @message
    def active(self) -> tuple[str, ...]:
        """From operations: the alarms that are active now."""

    @message
    def register(self, address: Address[ToAlarmListener], is_connection: bool = False) -> None:
        """From connections, the memory monitor, and the `Alarms` of other nodes: send `alarms` there, now if any is
        active, then at each change. Connections are notified of the alarms of all nodes, others of those of this node.
        """

    @message
    def node_met(self, node: str, address: Address[ToAlarms]) -> None:
        """From Metadata: this node is connected to another one, whose `Alarms` are there."""


class ToDiskMonitor(Contract):
    """What `DiskMonitor` receives."""

    @message
    def status(self) -> DiskStatus:
        """From the node: what was measured last."""

    @message
    def set_limit(self, value: object) -> DiskStatus:
        """From the node: use this limit until the node ends, and measure.

        Raises LimitError for a value that is no limit.
        """


class ToMemoryMonitor(ToAlarmListener):
    """What `MemoryMonitor` receives."""

    @message
    def status(self) -> MemoryStatus:
        """From operations: what was measured last."""

    @message
    def set_watermark(self, value: object) -> MemoryStatus:
        """From the node: use this watermark until the node ends, and measure; the machine's memory is read again.

        Raises LimitError for a value that is no watermark.
        """

    @message
    def collect(self) -> int:
        """From the node, for an operator: collect garbage, give free heap back, and answer with the bytes that this
        has freed.
        """

    @message
    def look(self) -> None:
        """From the connection whose input made `ReceivedBytes` reach its bound: measure the memory in use now."""

    @message
    def duration(self, queue: str, seconds: float) -> None:
        """From queues: what `queue` has in memory would last `seconds` at its present rates (queue-and-store section
        8.3).
        """


to_alarm_listener = ToAlarmListener()
to_memory_user = ToMemoryUser()
to_alarms = ToAlarms()
to_disk_monitor = ToDiskMonitor()
to_memory_monitor = ToMemoryMonitor()
