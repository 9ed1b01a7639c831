"""The sizes of files that a broker may remove while a test reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def size_of_files(paths: Iterable[Path]) -> int:
    """The bytes of the files among `paths`; one that is removed meanwhile counts nothing."""
    size = 0
    for path in paths:
        try:
            size += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return size
