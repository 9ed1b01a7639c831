"""A reset: a running node requests that its data directory be emptied, and its next start empties it.

The request is the file `reset` in the directory, which is written atomically. It contains the identity
(`cluster.json`) that the node has afterwards; if the file is empty, the node has none. It is deleted last, so after a
crash the next start completes the reset, and no part of the data remains.
"""

from __future__ import annotations

import os
import shutil

from ..disk.real_disk import RealDisk
from .whole_file import write_whole

FILE, TEMPORARY = "reset", "reset.new"

#: The node's identity as a member of a cluster.
IDENTITY, NEW_IDENTITY = "cluster.json", "cluster.json.new"

#: The directories of messages and metadata. The messages are deleted first, because a start refuses a directory that
#: has messages and no metadata.
_TREES = ("vhosts", "metadata")


def request(path: str, identity: bytes = b"") -> None:
    """Have the next start empty the data directory. Returns when the request is on the disk. Raises OSError."""
    write_whole(path, TEMPORARY, FILE, identity)


def perform(path: str) -> bool:
    """Empty the directory if that was requested; return whether it was. The caller holds its lock. Raises OSError."""
    try:
        with open(f"{path}/{FILE}", "rb") as file:
            identity = file.read()
    except FileNotFoundError:
        return False
    for name in _TREES:
        if os.path.lexists(f"{path}/{name}"):
            shutil.rmtree(f"{path}/{name}")
    for name in (IDENTITY, NEW_IDENTITY):
        if os.path.exists(f"{path}/{name}"):
            os.unlink(f"{path}/{name}")
    if identity:
        write_whole(path, NEW_IDENTITY, IDENTITY, identity)
    disk = RealDisk(path)
    disk.sync_dir("")
    os.unlink(f"{path}/{FILE}")
    disk.sync_dir("")
    return True
