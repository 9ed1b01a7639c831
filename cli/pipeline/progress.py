"""The line on standard error that shows how far a job is: replaced by the next one on a terminal, else repeated."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

#: Seconds between two lines of progress, on a terminal and elsewhere.
ON_TERMINAL, ELSEWHERE = 0.25, 10.0


@contextmanager
def note(text: str) -> Iterator[None]:
    """Show on a terminal what the command waits for, until the block ends."""
    is_terminal = sys.stderr.isatty()
    if is_terminal:
        click.echo(text, err=True, nl=False)
    try:
        yield
    finally:
        if is_terminal:
            _clear()


@contextmanager
def progress_line(text: Callable[..., str], quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Yields the function that a job calls with its progress; None if it is not to be shown.

    `text` makes the line: it gets the seconds since the block began, and what the job passes.
    """
    if quiet:
        yield None
        return
    is_terminal = sys.stderr.isatty()
    began = time.monotonic()
    # A terminal shows the first call at once, so that a person sees what happens.
    last = 0.0 if is_terminal else began

    def show(*progress: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (ON_TERMINAL if is_terminal else ELSEWHERE):
            return
        last = now
        line = text(max(now - began, ON_TERMINAL), *progress)
        click.echo(f"\r\033[K{line}" if is_terminal else line, err=True, nl=not is_terminal)

    try:
        yield show
    finally:
        if is_terminal:
            _clear()


def _clear() -> None:
    """Remove the line, so that the result or an error stands in its place."""
    click.echo("\r\033[K", err=True, nl=False)
