"""`write_whole`: small files of a data directory that a crash must not leave half written."""

from __future__ import annotations

from ..disk.real_disk import RealDisk
from ..disk.system.file_sync import sync_file


def write_whole(directory: str, temporary: str, name: str, data: bytes) -> None:
    """Write a file durably and in one step: after a crash it has all of `data` or is as before. Raises OSError."""
    with open(f"{directory}/{temporary}", "wb") as file:
        file.write(data)
        file.flush()
        sync_file(file.fileno())
    disk = RealDisk(directory)
    disk.rename(temporary, name)
    disk.sync_dir("")
