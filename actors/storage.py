"""What a node says when its data directory, or that of one of its virtual hosts, cannot be used."""

from __future__ import annotations

from ..runtime.errors import ProcessError


class StorageError(ProcessError):
    """It cannot start on its data directory; the text says what, why and the way out."""
