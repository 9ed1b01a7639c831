"""Why a process ended: what counts as a fault, and what people read."""

from __future__ import annotations

import pickle

import pytest

from warren.runtime.errors import ProcessDown
from warren.runtime.exit_reason import NOCONNECTION, NOPROC, NORMAL, SHUTDOWN, ExitKind, ExitReason, crash_reason


@pytest.mark.parametrize(
    ("reason", "is_fault", "text"),
    [
        (crash_reason(ValueError("x")), True, "crash: ValueError: x"),
        (ExitReason(ExitKind.OVERLOAD, "2 messages wait"), True, "overload: 2 messages wait"),
        (ExitReason(ExitKind.EXIT, "1"), True, "exit: 1"),
        (NOCONNECTION, True, "noconnection: the connection to its system is lost"),
        (NORMAL, False, "normal"),
        (ExitReason(ExitKind.ORDERLY, "deleted"), False, "deleted"),
        (SHUTDOWN, False, "shutdown"),
        (NOPROC, False, "noproc"),
    ],
)
def test_faults(reason, is_fault, text):
    """Only a crash, an overflowing mailbox, an exit before its work is done and a lost connection are faults."""
    assert reason.is_fault is is_fault
    assert str(reason) == text


def test_it_crosses_operating_system_processes():
    """A reason, and the error that carries one to an asker, can be pickled, so they reach other operating-system
    processes.
    """
    reason = crash_reason(ValueError("x"))
    assert pickle.loads(pickle.dumps(reason)) == reason
    error = pickle.loads(pickle.dumps(ProcessDown(reason)))
    assert (error.reason, str(error)) == (reason, "crash: ValueError: x")


def test_only_a_process_that_was_dead_before_is_noproc():
    assert NOPROC.is_noproc and not NORMAL.is_noproc
