"""What a process does when the disk refuses a write: nothing is confirmed, publishers are blocked as by a disk alarm, and it is tried again (QS-35)."""

from __future__ import annotations

import logging
from typing import Any

from ...runtime.process import Process

RETRY_SECONDS = 1.0

log = logging.getLogger("warren.disk")


class DiskTrouble:
    """Of one process, with which its alarm ends. `name` says in logs and to `Alarms` what cannot be written; `payload` is that of the timer after which it tries again."""

    def __init__(self, process: Process, alarms: Any, name: str, payload: str) -> None:
        self._process = process
        self._alarms = alarms
        self._name = name
        self._payload = payload
        self.is_on = False

    def failed(self, error: OSError) -> None:
        """A write failed."""
        if not self.is_on:
            log.error(
                "%s cannot be written: %s. Nothing is confirmed and publishers are blocked until the disk of the data directory takes writes again: look at its "
                "free space, quota and mount. It is tried again every %g s",
                self._name,
                error,
                RETRY_SECONDS,
            )
            self._set(True)
        self._process.start_timer(RETRY_SECONDS, self._payload)

    def worked(self) -> None:
        """A write succeeded."""
        if self.is_on:
            log.info("%s is written again", self._name)
            self._set(False)

    def _set(self, on: bool) -> None:
        self.is_on = on
        if self._alarms is not None:
            self._process.send(self._alarms, ("set", "disk", on, self._name, self._process.myAddress))
