"""How processes go on when the disk refuses a write: they report it once, wait, and try again (QS-35).

A write that fails loses nothing, because a process that waits for the write gets no answer before it has succeeded. So
the writing process keeps the job and repeats it until the disk accepts it (`DiskRetry.run`). While it repeats, an alarm
blocks publishers, as low disk space does. The log gets one line when the writes begin to fail and one when they succeed
again, not one for each attempt.

A queue or a virtual host that cannot be *started* because of its disk is tried again after growing waits (`Backoff`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ...runtime.contract import Address
from ...runtime.process import Process
from ..contracts.resources import ToAlarms, to_alarms

#: Seconds between two attempts at a write.
RETRY_SECONDS = 1.0

#: Seconds between two attempts at a start: the first wait, and the longest one.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0

Result = TypeVar("Result")

log = logging.getLogger("warren.disk")


class DiskRetry:
    """Repeats the writes of one process.

    name          what cannot be written, for the log and as the origin of the alarm
    alarms        the process that blocks publishers meanwhile, None to block nobody; the alarm ends with `process`
    consequence   what operators read: what does not work until the disk does
    """

    def __init__(
        self,
        process: Process,
        name: str,
        alarms: Address[ToAlarms] | None,
        consequence: str = "No message is confirmed and publishers are blocked",
    ) -> None:
        self._process = process
        self._name = name
        self._alarms = alarms
        self._consequence = consequence
        #: Whether the last write failed.
        self.is_failing = False

    async def run(self, job: Callable[..., Result], *args: object, is_given_up: Callable[[], bool]) -> Result:
        """Run `job(*args)` in another thread until it raises no OSError, and return its result.

        Raises the OSError of a failed attempt if `is_given_up()` is true then: a node that stops does not wait for room
        on its disk.
        """
        while True:
            try:
                result: Result = await self._process.run_blocking(job, *args)
            except OSError as error:
                if is_given_up():
                    raise
                self.failed(error, RETRY_SECONDS)
                await self._process.sleep(RETRY_SECONDS)
            else:
                self.worked()
                return result

    def failed(self, error: Exception, seconds: float) -> None:
        """Report that a write failed, unless the one before failed too; it is tried again in `seconds`."""
        if not self.is_failing:
            log.error(
                "%s cannot be written: %s. %s until the disk of the data directory accepts writes again: "
                "check its free space, quota and mount. The broker tries again every %g s",
                self._name,
                error,
                self._consequence,
                seconds,
            )
            self._set(True)

    def worked(self) -> None:
        """Report that a write succeeded, if the one before failed."""
        if self.is_failing:
            log.info("%s is written again", self._name)
            self._set(False)

    def _set(self, is_failing: bool) -> None:
        self.is_failing = is_failing
        if self._alarms is not None:
            self._process.send(self._alarms, to_alarms.set("disk", is_failing, self._name, self._process.myAddress))


class Backoff:
    """The waits before the attempts to start one thing: `FIRST_WAIT`, then twice the wait before, at most
    `LONGEST_WAIT`.
    """

    __slots__ = ("_wait",)

    def __init__(self) -> None:
        self._wait = FIRST_WAIT / 2

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        return self._wait
