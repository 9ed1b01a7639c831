"""Making the names in a directory durable after a file was created, renamed or deleted.

POSIX systems sync a directory through a descriptor. Windows opens no directories; NTFS logs changes of names itself.
"""

from __future__ import annotations

import os

from .file_sync import sync_fully


def sync_directory(path: str) -> None:
    """Make the names durable. Waits for the disk. Raises OSError, FileNotFoundError for a missing directory."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_fully(fd)  # a directory has no data apart from its names, so fdatasync would not be enough everywhere
    finally:
        os.close(fd)
