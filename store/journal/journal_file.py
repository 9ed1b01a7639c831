"""The names and the layout of journal files.

A journal is a sequence of files `000001.wal`, `000002.wal` and so on. A file is a sequence of frames of kind RECORDS;
`records` describes frames and records, and the version is that of the frames. The first records of a file are the STATE
of each queue, so that older files can be given up without losing where a queue's numbering stands.
"""

from __future__ import annotations

import re

SUFFIX = ".wal"
_NAME = re.compile(r"(\d{6,})\.wal", re.ASCII)


def file_number(name: str) -> int | None:
    """The number in a journal file's name; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and name == file_name(int(match[1])) else None


def file_name(number: int) -> str:
    """The name of a journal file."""
    return f"{number:06}{SUFFIX}"
