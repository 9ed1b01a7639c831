"""Errors of processes that use the disk."""

from __future__ import annotations

from ...runtime.errors import ProcessError


class StorageError(ProcessError):
    """The directory of a node or a virtual host cannot be used. The text names it, the reason and the way out."""


class BatchLost(Exception):
    """A message of the queue to its journal was lost on the way.

    The queue crashes with it and starts again from what is on the disk; its channels refuse what was not confirmed.
    """
