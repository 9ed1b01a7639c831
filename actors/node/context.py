"""What every process of a node is told when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...routing.table import RoutingTable
from ...store.data_dir.file_limits import REAL_FILES, FileLimits
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, Progress
from ...store.disk.real_disk import RealDisk
from .extensions import NO_EXTENSIONS, Extensions


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node as its processes see it. `metadata`, `alarms` and `memory_monitor` are the addresses of those processes."""

    node_name: str
    settings: Any  # the node's `Settings`
    routing: RoutingTable
    metadata: Any
    alarms: Any
    extensions: Extensions = NO_EXTENSIONS
    memory_monitor: Any = None
    open_disk: Callable[[str], Disk] = RealDisk  # a directory of the operating system -> its files
    boot_id: str | None = None  # of this run of the machine; None: the operating system says
    progress: Progress = NO_PROGRESS  # hears how far the recovery of a data directory is
    limits: FileLimits = REAL_FILES
