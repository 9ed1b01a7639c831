"""The reserve: a file in the data directory that keeps some disk space for a start on a full disk.

A start must write a little: it clears the recovery terms, creates journal and store files, and writes acknowledgements.
On a disk that the broker's own messages have filled it could write nothing, so consumers could not drain the queues.
Therefore `claim` removes this file before anything else, and the disk monitor creates it again when there is room.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..disk.disk import Disk

#: The name of the file in the data directory.
NAME = "reserve"

#: Size of the reserve in bytes. Simulated disks have a smaller one (`simulation.disks.LARGE_FILES`).
SIZE = 8 << 20


def give_back(path: str) -> None:
    """Remove the reserve of the data directory `path`, if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(f"{path}/{NAME}")


def keep(disk: Disk, size: int, limit: int) -> bool:
    """Make the reserve unless it exists, and return whether it exists now. Waits for the disk.

    It is made only if at least `size` bytes stay free, and at least `limit` bytes, below which the disk alarm is set.
    Raises OSError.
    """
    if disk.exists(NAME):
        return True
    if disk.free_space() - size < max(size, limit):
        return False
    file = disk.open(NAME, create=True)
    try:
        file.allocate(size)
    except OSError:
        disk.delete(NAME)
        raise
    finally:
        file.close()
    return True
