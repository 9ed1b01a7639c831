"""The job that reads bodies from the files of a message store in another thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .location_index import BodyLocation
from .open_files import OpenFile
from .rdq_file import DamagedRecord, read_message


class Cold(NamedTuple):
    """A body that is not in memory and must be read from a file; it becomes `messages[at]` of the job."""

    at: int
    message_id: bytes
    entry: BodyLocation
    held: OpenFile


class BodyReadJob:
    """Reads the messages of `ids`: `messages[i]` is that of `ids[i]`, None if there is none or it is damaged.

    `messages` is complete after `run`, or from the start if `is_complete`.
    """

    def __init__(self, ids: Sequence[bytes], messages: list[bytes | None], cold: list[Cold]) -> None:
        self.ids = ids
        self.messages = messages
        self.cold = cold
        self.damaged: list[tuple[bytes, BodyLocation]] = []

    @property
    def is_complete(self) -> bool:
        return not self.cold

    def run(self) -> None:
        """Read the bodies. Waits for the disk."""
        self.damaged = []
        for at, message_id, entry, held in self.cold:
            try:
                self.messages[at] = read_message(held.file, entry.offset, entry.total_size, message_id)
            except DamagedRecord:
                self.damaged.append((message_id, entry))
