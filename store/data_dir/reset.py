"""A reset: a node that runs decides that its data directory is to be emptied, and its next start does it.

The decision is the file `reset` in the directory, which is written in one step. Its text is the identity
(`cluster.json`) that the node has afterwards; if it is empty, the node has none. Until everything is deleted the file
stays, so a crash delays a reset and never leaves a part of the data.
"""

from __future__ import annotations

import os
import shutil

from ..disk.real_disk import RealDisk
from .whole_file import write_whole

FILE, TEMPORARY = "reset", "reset.new"

#: What a node knows of itself as a member of a cluster.
IDENTITY, NEW_IDENTITY = "cluster.json", "cluster.json.new"

#: What has the metadata and the messages. The messages are deleted first: without metadata they would look like those
#: of a directory that has lost it.
_TREES = ("vhosts", "metadata")


def request(path: str, identity: bytes = b"") -> None:
    """Have the next start empty the data directory, and return when the disk has this. Raises OSError."""
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
