"""`side_by_side`: one process does several operations that wait, a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from .process import Process
from .signal import Signal

Item = TypeVar("Item")


async def side_by_side(
    process: Process, most: int, operation: Callable[[Item], Coroutine[object, None, None]], items: Iterable[Item]
) -> None:
    """Run `operation(item)` for each of any number of items, `most` of them at a time, and return when all are done.

    If one raises an error, no further ones begin, and the error is raised when those that have begun are done.
    """
    running, one_ended = 0, Signal(process)
    errors: list[Exception] = []

    async def run(item: Item) -> None:
        nonlocal running
        try:
            await operation(item)
        except Exception as error:
            errors.append(error)
        finally:
            running -= 1
            one_ended.wake_all()

    def has_room() -> bool:
        return running < most

    for item in items:
        await one_ended.wait_for(has_room)
        if errors:
            break
        running += 1
        process.spawn(run(item))
    await one_ended.wait_for(lambda: not running)
    if errors:
        raise errors[0]
