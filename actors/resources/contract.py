"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..node.context import NodeContext


class ToAlarmListener(Contract):
    """What a process receives that has registered with `Alarms`."""

    @message
    def alarms(self, sources: tuple[str, ...]) -> None:
        """The resource alarms now active in the node: `memory`, `disk`, both or none (AB-33, AB-34)."""


class ToAlarms(Contract):
    """What `Alarms` (`actors/resources/alarms.py`) receives."""

    @message
    def set(self, source: str, on: bool, origin: str = "operator", address: Any = None) -> bool:
        """TODO"""

    @message
    def register(self, address: Address[ToAlarmListener]) -> None:
        """TODO"""

    @message
    def unregister(self, address: Address[ToAlarmListener]) -> None:
        """TODO"""

    @message
    def active(self) -> tuple[str, ...]:
        """TODO"""


class ToDiskMonitor(Contract):
    """What `DiskMonitor` (`actors/resources/disk_monitor.py`) receives."""

    @message
    def start(self, context: NodeContext, total_memory: int) -> dict[str, Any]:
        """TODO"""

    @message
    def set_limit(self, value: Any) -> dict[str, Any]:
        """TODO"""

    @message
    def status(self) -> dict[str, Any]:
        """TODO"""


class ToMemoryMonitor(ToAlarmListener):
    """What `MemoryMonitor` (`actors/resources/memory_monitor.py`) receives."""

    @message
    def start(self, context: NodeContext) -> dict[str, Any]:
        """TODO"""

    @message
    def set_watermark(self, value: Any) -> dict[str, Any]:
        """TODO"""

    @message
    def status(self) -> dict[str, Any]:
        """TODO"""

    @message
    def duration(self, queue: str, seconds: float) -> None:
        """TODO"""


to_alarm_listener = ToAlarmListener()
to_alarms = ToAlarms()
to_disk_monitor = ToDiskMonitor()
to_memory_monitor = ToMemoryMonitor()
