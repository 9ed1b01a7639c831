"""Operations that watch a node: its events and its log, as they come or as they are in the file."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from ....context.recent_log import LEVELS, LINES_KEPT
from ....contracts.events import to_event_hub
from ....contracts.node import to_node
from ..registry import OperationError, Operator, Rows, operation

#: Seconds between two checks for new events.
WATCH_CHECK = 0.1

#: The most bytes that are read from the end of a log file.
TAIL_BYTES = 4 * 1024 * 1024


@operation(while_booting=True)
async def consume_event_stream(
    operator: Operator, *, pattern: str = "#", duration: float | None = None
) -> AsyncIterator[Rows]:
    """The events whose name matches the topic pattern, for `duration` seconds or until the command ends."""
    async for rows in _watch(operator, pattern, False, duration):
        yield rows


@operation(while_booting=True)
async def log_tail_stream(operator: Operator, *, duration: float | None = None) -> AsyncIterator[Rows]:
    """The lines of the log from now on, for `duration` seconds or until the command ends."""
    async for rows in _watch(operator, "#", True, duration):
        yield rows


async def _watch(operator: Operator, pattern: str, is_log: bool, duration: float | None) -> AsyncIterator[Rows]:
    process = operator.process
    hub = await process.ask(operator.node, to_node.event_hub())
    number = await process.ask(hub, to_event_hub.subscribe(pattern, is_log))
    end = None if duration is None else process.now() + duration
    while end is None or process.now() < end:
        await process.sleep(WATCH_CHECK if end is None else min(WATCH_CHECK, max(0.0, end - process.now())))
        found = await process.ask(hub, to_event_hub.take(number))
        if found:
            yield found


@operation(while_booting=True)
async def log_location(operator: Operator) -> list[str]:
    """The files to which the node writes its log; none if that is its standard error."""
    return log_files()


@operation(while_booting=True)
async def log_tail(operator: Operator, *, lines: int = 50) -> Rows:
    """The last lines of the node's log file."""
    files = log_files()
    if not files:
        raise OperationError(
            "unavailable",
            "the node writes its log to its standard error, and keeps none; the option --log-file of `warren start`"
            " names a file",
        )
    if lines < 1:
        raise OperationError("data", f"Bad argument: the number of lines must be 1 or more, not {lines}")
    try:
        return [{"line": line} for line in await operator.process.run_blocking(_tail, files[0], lines)]
    except OSError as error:
        raise OperationError("unavailable", f"the log file {files[0]} cannot be read: {error.strerror}") from None


@operation(while_booting=True)
async def recent_log(operator: Operator, *, level: str = "debug", text: str = "", lines: int = LINES_KEPT) -> Rows:
    """The newest lines of the log from this level on that contain the text, the oldest first (CM-411).

    A node with a management process keeps lines from its start on, wherever its log goes.
    """
    log = operator.context.recent_log
    if not log.is_open:
        raise OperationError(
            "unavailable",
            "the node keeps no lines of its log, because it has no management process (setting management)",
        )
    if level not in LEVELS:
        raise OperationError("data", f"Bad argument: there is no level '{level}'. Try one of {', '.join(LEVELS)}")
    if not 1 <= lines <= LINES_KEPT:
        raise OperationError("data", f"Bad argument: the number of lines must be from 1 to {LINES_KEPT}, not {lines}")
    return [line._asdict() for line in log.lines(level, text, lines)]


def log_files() -> list[str]:
    """The files of the program's log."""
    handlers = logging.getLogger().handlers
    files = [handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)]
    return [path for path in files if path != os.devnull]


def _tail(path: str, count: int) -> list[str]:
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return lines[-count:]
