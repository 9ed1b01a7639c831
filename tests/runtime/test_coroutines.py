"""Coroutines of a process: how they are closed."""

from __future__ import annotations

import weakref

import pytest

from warren.runtime.coroutines import Pending, Task


class Resource:
    """Something that a coroutine refers to, like an open file."""


def test_a_coroutine_that_awaits_while_it_is_closed_keeps_nothing_alive():
    """A coroutine that awaits in a `finally` while it is closed keeps nothing alive: operations of Metadata do so, and
    the files of its process must be closed when that ends.
    """

    async def operation(resource, first, second):
        try:
            await first
        finally:
            await second

    resource = Resource()
    first, second = Pending(None), Pending(None)
    task = Task(operation(resource, first, second), None)
    first.task = second.task = task
    task.coroutine.send(None)
    left = weakref.ref(resource)
    del resource
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        task.close()
    assert left() is None


def test_an_error_at_an_await_keeps_nothing_alive():
    """An error that is raised at an await keeps nothing alive: its traceback refers to the frames of the coroutine,
    from which no cycle may lead back to the error.
    """

    async def operation(resource, answer):
        await answer

    resource, answer = Resource(), Pending(None)
    answer.settle(False, ValueError("refused"))
    coroutine = operation(resource, answer)
    left = weakref.ref(resource)
    del resource
    try:
        coroutine.send(None)
    except ValueError:
        pass
    del coroutine
    assert left() is None


def test_a_coroutine_that_has_ended_can_be_closed():
    """Closing a coroutine that has ended does nothing."""

    async def operation():
        return None

    task = Task(operation(), None)
    with pytest.raises(StopIteration):
        task.coroutine.send(None)
    task.close()
