"""`ExitReason`: why a process ended, as its monitors, its askers and the log receive it.

A supervisor restarts a process that ended by a fault, and no other. A channel refuses the publishes that a queue had
not confirmed when it ended by a fault. Both decide by `is_fault`, never by the text, which is for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ExitKind(Enum):
    """What ended a process."""

    #: The process called `stop`, or another process asked it to exit.
    ORDERLY = "orderly"
    #: A handler raised an error that it may not answer with.
    CRASH = "crash"
    #: A handler raised SystemExit, or the process stopped itself before its work was done.
    EXIT = "exit"
    #: More messages waited than its `mailbox_limit` allows.
    OVERLOAD = "overload"
    #: The whole system ended before the process did, or Thespian reported the end of a child without a reason.
    KILLED = "killed"
    #: The connection to the system of the process was lost, so it is unknown whether the process still runs.
    NOCONNECTION = "noconnection"
    #: The process had ended before it was monitored or asked, so its reason is no longer known.
    NOPROC = "noproc"


_FAULTS = frozenset({ExitKind.CRASH, ExitKind.EXIT, ExitKind.OVERLOAD, ExitKind.NOCONNECTION})


@dataclass(frozen=True, slots=True)
class ExitReason:
    """The kind, and a text for people. Pickles, because monitors may live in another operating-system process."""

    kind: ExitKind
    text: str

    @property
    def is_fault(self) -> bool:
        """Whether the process ended without meaning to, or without finishing its work, as far as is known here."""
        return self.kind in _FAULTS

    @property
    def is_noproc(self) -> bool:
        """Whether the process had ended before it was monitored."""
        return self.kind is ExitKind.NOPROC

    @property
    def is_noconnection(self) -> bool:
        """Whether the process lives in a system to which the connection is lost, so that it may well run on."""
        return self.kind is ExitKind.NOCONNECTION

    @property
    def is_exit(self) -> bool:
        """Whether the process stopped itself before its work was done, for example because its node stops."""
        return self.kind is ExitKind.EXIT

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}" if self.is_fault else self.text


#: The process ended as intended and gave no reason of its own.
NORMAL = ExitReason(ExitKind.ORDERLY, "normal")

#: There is no such process (any more).
NOPROC = ExitReason(ExitKind.NOPROC, "noproc")

#: The system of the process is not connected, or no longer.
NOCONNECTION = ExitReason(ExitKind.NOCONNECTION, "the connection to its system is lost")

#: The system in which the process ran has ended.
SHUTDOWN = ExitReason(ExitKind.KILLED, "shutdown")


def crash_reason(error: BaseException) -> ExitReason:
    """The reason of a process in which a handler raised `error`."""
    return ExitReason(ExitKind.CRASH, f"{type(error).__name__}: {error}")
