"""How many descriptors of files and sockets the program has open, and how many it may have."""

from __future__ import annotations

import os


def open_descriptors() -> int:
    """How many descriptors the program has open; 0 where the system has no list of them."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0


def descriptor_limit() -> int:
    """How many descriptors the program may have; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
