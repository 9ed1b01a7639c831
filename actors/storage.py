"""What the node says when its data directory cannot be used."""

from __future__ import annotations

from ..runtime.errors import ProcessError


class StorageError(ProcessError):
    """The node cannot start on its data directory; the text says what, why and the way out."""
