"""What a process that is forked from the program keeps of the program's brokers: nothing.

A forked process has all descriptors of the program. If the program then dies, the sockets of its brokers would stay
open as long as that process lives: clients would wait for a broker that is gone, the next broker could use neither the
port nor the data directory, and the management process would go on. So the forked process replaces these descriptors
with such of `/dev/null` before it does anything else. They are replaced and not closed, because objects in its copy of
the memory would close their numbers once more, after other files have got them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class DescriptorHolder(Protocol):
    """A part of a broker that has descriptors which only the broker's own process may keep."""

    def descriptors(self) -> Iterable[int]:
        """The descriptors at this moment."""


_holders: WeakSet[DescriptorHolder] = WeakSet()


def keep_from_forks(holder: DescriptorHolder) -> None:
    """Have processes that are forked from this one replace what the holder has then."""
    _holders.add(holder)


def _replace_descriptors() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for holder in _holders:
        for fd in list(holder.descriptors()):
            with suppress(OSError):
                os.dup2(nowhere, fd, inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_descriptors)
