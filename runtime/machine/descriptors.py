"""How many descriptors of files and sockets the program has open, and how many it may have.

Each connection takes one, and each virtual host six. Many systems let a program have 1,024 unless it asks for more.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ...portable import IS_PORTABLE

#: The directory with an entry for each descriptor of the program. Other systems than Linux have it elsewhere, or not.
_OPEN = "/dev/fd" if IS_PORTABLE else "/proc/self/fd"

#: What a server asks for, as RabbitMQ's package for Debian does.
SERVER_DESCRIPTORS = 65_536


def open_descriptors() -> int:
    """How many descriptors the program has open; 0 where the system has no list of them."""
    try:
        return len(os.listdir(_OPEN)) - 1
    except OSError:
        return 0


def descriptor_limit() -> int:
    """How many descriptors the program may have; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit(wanted: int = SERVER_DESCRIPTORS) -> None:
    """Let the program have `wanted` descriptors, or as many as the system allows it. A higher limit stays."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # macOS may allow fewer descriptors than the hard limit. Then the limit stays as it was.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
