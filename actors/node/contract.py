"""TODO: what the processes of this folder receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.contract import Contract, message
from ...store.data_dir.file_limits import REAL_FILES
from ...store.disk.progress import NO_PROGRESS
from ...store.disk.real_disk import RealDisk
from .extensions import NO_EXTENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...routing.rows import QueueRow
    from ...store.data_dir.file_limits import FileLimits
    from ...store.disk.disk import Disk
    from ...store.disk.progress import Progress
    from ..queue.durability import VhostStorage
    from .context import NodeContext
    from .extensions import Extensions


class ToNode(Contract):
    """What `NodeSupervisor` (`actors/node/process.py`) receives."""

    @message
    def start(
        self,
        settings: Any,
        extensions: Extensions = NO_EXTENSIONS,
        open_disk: Callable[[str], Disk] = RealDisk,
        boot_id: str | None = None,
        progress: Progress = NO_PROGRESS,
        limits: FileLimits = REAL_FILES,
    ) -> dict[str, Any]:
        """TODO"""

    @message
    def stop(self, reason: str) -> bool:
        """TODO"""

    @message
    def close_connections(self, reason: str) -> int:
        """TODO"""

    @message
    def await_end(self) -> None:
        """See above."""

    @message
    def create_vhost(self, name: str) -> None:
        """TODO"""

    @message
    def delete_vhost(self, name: str) -> None:
        """TODO"""

    @message
    def trace(self, vhost: str, on: bool) -> None:
        """TODO"""

    @message
    def set_queue_mode(self, vhost: str, name: str, mode: str) -> None:
        """TODO"""

    @message
    def start_vhost(self, name: str, rows: list[QueueRow]) -> tuple[Any, list[QueueRow]]:
        """TODO"""

    @message
    def stop_vhost(self, name: str) -> bool:
        """TODO"""

    @message
    def set_alarm(self, source: str, on: bool) -> bool:
        """TODO"""

    @message
    def set_watermark(self, value: Any) -> dict[str, Any]:
        """TODO"""

    @message
    def set_disk_free_limit(self, value: Any) -> dict[str, Any]:
        """TODO"""

    @message
    def queue_info(self, vhost: str, name: str) -> dict[str, Any]:
        """From the embedding program: the info items of one queue, without counts unless the queue answers."""

    @message
    def list(self, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        """TODO"""


class ToQueueSupervisor(Contract):
    """What `QueueSupervisor` (`actors/node/queue_supervisor.py`) receives."""

    @message
    def start(self, context: NodeContext, storage: VhostStorage | None) -> None:
        """TODO"""

    @message
    def recover(self, rows: list[QueueRow], terms: dict[int, dict[str, Any]]) -> dict[str, Any]:
        """TODO"""

    @message
    def open(self, wanted: dict[str, Any]) -> tuple[list[QueueRow], int]:
        """TODO"""

    @message
    def start_queue(self, row: QueueRow) -> QueueRow:
        """TODO"""

    @message
    def forget_queue(self, queue_id: str) -> bool | None:
        """TODO"""

    @message
    def terminate(self) -> dict[int, dict[str, Any]]:
        """TODO"""


class ToVhost(Contract):
    """What `VhostSupervisor` (`actors/node/vhost_supervisor.py`) receives."""

    @message
    def start(self, context: NodeContext, name: str, rows: list[QueueRow]) -> tuple[Any, list[QueueRow]]:
        """TODO"""

    @message
    def terminate(self) -> None:
        """TODO"""

    @message
    def await_end(self) -> None:
        """See above."""


to_node = ToNode()
to_queue_supervisor = ToQueueSupervisor()
to_vhost = ToVhost()
