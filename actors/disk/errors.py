"""What a node says when its data directory, or that of one of its virtual hosts, cannot be used."""

from __future__ import annotations

from ...runtime.errors import ProcessError


class StorageError(ProcessError):
    """It cannot start on its data directory; the text says what, why and the way out."""


class BatchLost(Exception):
    """Something that a queue sent on its way to the disk did not arrive. It starts again from what is there, and its channels refuse what was not confirmed."""
