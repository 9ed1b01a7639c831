"""Which process listens on a TCP port: `port_holder` for the error of a broker that cannot use the port,
`listening_process` for benchmarks, which measure the process.

Only Linux has this in /proc; elsewhere the holder is unknown.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...portable import IS_PORTABLE

#: The state LISTEN in /proc/net/tcp.
_LISTEN = "0A"


def port_holder(port: int) -> str:
    """`name (process 123)` for the process that listens on the port; empty if it cannot be found (another user's)."""
    process = listening_process(port)
    if process is None:
        return ""
    try:
        return f"{Path(f'/proc/{process}/comm').read_text().strip()} (process {process})"
    except OSError:
        # The process has ended since it was found.
        return ""


def listening_process(port: int) -> int | None:
    """The id of the process that listens on the port; None if it cannot be found."""
    if IS_PORTABLE:
        return None
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # Number, local address as hexadecimal host:port, remote address, state, ...; the tenth field is the inode.
            parts = line.split()
            if parts[3] == _LISTEN and int(parts[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{parts[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None
