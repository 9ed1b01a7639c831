"""The errors of `Indexer`."""

from __future__ import annotations

from ...runtime.errors import ProcessError


class IndexBusy(ProcessError):
    """Too many searches are under way, and none has ended in time."""


class NotRegistered(ProcessError):
    """A queue reports to an indexer that was started after the queue registered: the former one has crashed."""
