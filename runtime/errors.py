"""Errors between processes. A `ProcessError` that a handler raises is sent to the asker and raised there."""

from __future__ import annotations

from .exit_reason import NOPROC, ExitReason


class ProcessError(Exception):
    """An answer that is an error. Subclasses must pickle: they cross operating-system processes."""


class ProcessDown(ProcessError):
    """The process that was asked has ended, or had ended already; `reason` is the one that its monitors receive."""

    def __init__(self, reason: ExitReason = NOPROC) -> None:
        super().__init__(reason)
        self.reason = reason


class ProcessTimeout(ProcessError):
    """No answer came within the time the asker allowed."""


class UnknownMessage(ProcessError):
    """A process has no handler for the message it was sent."""
