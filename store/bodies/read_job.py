"""Reading messages from a message store's files in another thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .location_index import Entry
from .open_files import OpenFile
from .rdq_file import DamagedRecord, read_message


class Cold(NamedTuple):
    """A message that must be read from a file."""

    at: int
    message_id: bytes
    entry: Entry
    held: OpenFile


class BodyReadJob:
    """`messages[i]` is the message of `ids[i]`, None if there is none; complete at once if `is_complete`, else after `run`."""

    def __init__(self, ids: Sequence[bytes], messages: list[bytes | None], cold: list[Cold]) -> None:
        self.ids = ids
        self.messages = messages
        self.cold = cold
        self.damaged: list[tuple[bytes, Entry]] = []

    @property
    def is_complete(self) -> bool:
        return not self.cold

    def run(self) -> None:
        self.damaged = []
        for at, message_id, entry, held in self.cold:
            try:
                self.messages[at] = read_message(held.file, entry.offset, entry.total_size, message_id)
            except DamagedRecord:
                self.damaged.append((message_id, entry))
