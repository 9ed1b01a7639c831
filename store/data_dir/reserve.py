"""The reserve: a file in the data directory that keeps some disk space for a start on a full disk.

A start must write a little: it clears the recovery terms, begins journal and store files, and writes what consumers
acknowledge. On a disk that is full of the broker's own messages it could do nothing of that, so nobody could drain the
queues. Therefore `claim` removes this file first of all, and the disk monitor makes it again when there is room.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..disk.disk import Disk

#: Its name in the data directory.
NAME = "reserve"

#: Bytes of the reserve of a broker that runs with real disks.
SIZE = 8 << 20


def give_back(path: str) -> None:
    """Remove the reserve of the data directory `path`, if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(f"{path}/{NAME}")


def keep(disk: Disk, size: int, limit: int) -> bool:
    """Make the reserve unless it exists, and return whether it exists now. Waits for the disk.

    It is made only if as many bytes as its own, and the `limit` of the disk alarm, stay free beside it. Raises OSError.
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
