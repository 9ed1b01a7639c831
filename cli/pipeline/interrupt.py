"""Ctrl-C in a command of `warren pipeline`: what the first one does, and that the second one ends the program at once.

A signal handler must not raise while PySpark waits for Java: PySpark would log the exception with a traceback, and its
own handler would ask Java for more in the middle of an answer. So a job that has something to end is asked to end
(`ended_in_order`), and for any other job that log is switched off first (`ended_at_once`).
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: The exit code of a command that Ctrl-C has ended.
INTERRUPTED = 130


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt, and a second one end the program without any cleaning up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _give_up)
        logging.disable()
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def ended_in_order(goal: str) -> Iterator[Callable[[], bool]]:
    """Have Ctrl-C ask the job to end, and a second one end the program; yields a function that returns whether the job
    is to end.

    `goal` states what the job still does: "Ending after the files that are being written".
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, _give_up)
        # Not by `click.echo`: the signal may have come while that was writing.
        os.write(2, f"\r\n{goal}. Ctrl-C again ends at once.\n".encode())

    with _handled_by(ask):
        yield lambda: asked


def _give_up(number: int, frame: FrameType | None) -> None:
    # Java and its workers end with this process, because they read from it.
    os._exit(INTERRUPTED)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
