"""Which run of the operating system this is: after a power cut, files that were not synced may have lost anything.

Linux has a random id for each boot in /proc, and macOS one that `sysctl` prints. The twin for any other system is an
id that this process draws: then every start that follows an unclean end counts as another boot, so the message store
rebuilds its index where it could have used it. That takes time and loses nothing.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from functools import lru_cache

from ....portable import IS_PORTABLE


@lru_cache(maxsize=1)
def linux_boot_id() -> str:
    """The kernel's id of this boot. Each message store asks for it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


@lru_cache(maxsize=1)
def portable_boot_id() -> str:
    """The portable twin; the same for all of this process."""
    if sys.platform == "darwin":
        asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return f"process {uuid.uuid4().hex}"


#: The function that this process uses.
this_boot: Callable[[], str] = portable_boot_id if IS_PORTABLE else linux_boot_id
